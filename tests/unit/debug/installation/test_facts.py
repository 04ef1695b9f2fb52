"""What this installation says of itself, to people and as JSON."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

import allhands as dist
from allhands import settings
from allhands.__main__ import main
from allhands.backends.gloo import library as gloo_library
from allhands.debug.installation import facts


def described(capsys):
    assert main(["info", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_backends_say_what_they_are_made_of_or_why_they_are_not_there(
    capsys, monkeypatch
):
    monkeypatch.setattr(gloo_library, "find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    facts = described(capsys)
    backends = {backend["name"]: backend for backend in facts["backends"]}
    assert {"native", "gloo", "mpi", "nccl", "ucc", "xccl", "fake"} <= {*backends}
    assert backends["native"]["of"] == f"allhands {dist.__version__}"
    assert not backends["gloo"]["is_available"]
    assert "pip install torch" in backends["gloo"]["why"]
    assert 'use backend="native"' in backends["ucc"]["why"]
    assert facts["arrays"]["numpy"] == np.__version__
    monkeypatch.setenv("ALLHANDS_REPLACE_GLOO", "1")
    [gloo] = [b for b in described(capsys)["backends"] if b["name"] == "gloo"]
    assert (gloo["is_available"], gloo["of"]) == (True, backends["native"]["of"])


def test_settings_say_where_they_are_from_and_secrets_stay(capsys, monkeypatch):
    for setting in settings.ALL:
        monkeypatch.delenv(setting.name, raising=False)
    monkeypatch.setenv("ALLHANDS_SECRET", "hush")
    monkeypatch.setenv("ALLHANDS_PATIENCE", "long")
    monkeypatch.setenv("ALLHANDS_SECRT", "hush")
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert "hush" not in out
    lines = [line.strip() for line in out.splitlines()]
    assert "ALLHANDS_SECRET=not shown [environment]" in lines
    assert "ALLHANDS_HEARTBEAT=5.0 [default]" in lines
    [patience] = [line for line in lines if line.startswith("ALLHANDS_PATIENCE=")]
    assert patience.startswith("ALLHANDS_PATIENCE=long [environment] (environment var")
    [strange] = [line for line in lines if line.startswith("ALLHANDS_SECRT=")]
    assert strange.startswith("ALLHANDS_SECRT=not shown [environment] (is no setting; ")
    names = {line.partition("=")[0] for line in lines if "=" in line}
    assert {setting.name for setting in settings.ALL} <= names


def test_the_host_is_told(capsys, monkeypatch):
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "1")
    monkeypatch.delenv("ALLHANDS_STORE", raising=False)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    facts = described(capsys)
    assert facts["launcher"] == "mpiexec"
    host = facts["host"]
    assert 1 <= host["usable_cpus"] <= host["cpus"]
    assert re.fullmatch(r"\d+ of [1-9]\d* MiB available", host["memory"])
    assert re.match(r"\d+ of \d+ MiB free; native keeps no", host["/dev/shm"])
    assert any("127.0.0.1/8" in text for text in host["interfaces"])
    assert {"open files", "processes", "locked memory"} == {*host["limits"]}
    monkeypatch.setenv("PMI_RANK", "7")
    assert described(capsys)["launcher"].startswith("unclear: mpiexec says that this")


def test_json_goes_alone(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["info", "--json", "--ways"])
    assert "not allowed with" in capsys.readouterr().err


def test_nothing_is_imported_for_it():
    program = (
        "import sys, json; from allhands.__main__ import main; main(['info']);"
        "assert not {'torch', 'mpi4py'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_a_file_that_is_not_there_is_nothing(tmp_path):
    assert facts._read(tmp_path / "x") == ""
