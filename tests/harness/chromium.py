"""A real browser without a window: Debian's package `chromium`."""

import functools
import os
import pathlib
import shutil
import subprocess
import tempfile

from harness.ranks import LIMIT

WHY_NOT = "there is no chromium (Debian: apt-get install chromium)"


@functools.cache
def chromium():
    """Its path; None: there is none."""
    return shutil.which("chromium")


def _run(url, *options):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                chromium(),
                "--headless",
                *(["--no-sandbox"] if os.geteuid() == 0 else []),
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--no-first-run",
                f"--user-data-dir={folder}",
                # Of the page's own clock, which stands still while it fetches.
                "--virtual-time-budget=1500",
                *options,
                url,
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            env={**os.environ, "HOME": folder},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def dom_of(url):
    """The page as HTML, once its script has run."""
    return _run(url, "--dump-dom")


def screenshot(url, path, width, height):
    """The same as a picture."""
    _run(url, f"--screenshot={path}", f"--window-size={width},{height}")
    return pathlib.Path(path)
