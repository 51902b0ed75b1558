"""The `service` guest in Python: a `wasi:http` component of WASI 0.3. It counts down and greets."""

import asyncio
import os

import wit_world
from componentize_py_async_support import spawn
from componentize_py_async_support.streams import ByteStreamWriter
from componentize_py_types import Ok
from wit_world import exports
from wit_world.imports.wasi_http_types import Fields, Request, Response


class Handler(exports.Handler):
    async def handle(self, request: Request) -> Response:
        text = f"Hello from Python! {os.environ.get('GREETING', '')}{request.get_path_with_query()}\n"
        writer, reader = wit_world.byte_stream()
        # The answer has no trailers.
        trailers = wit_world.result_option_wasi_http_types_fields_wasi_http_types_error_code_future(lambda: Ok(None))[1]
        response, _ = Response.new(Fields.from_list([("content-type", b"text/plain")]), reader, trailers)
        spawn(write(writer, text))
        return response


async def write(writer: ByteStreamWriter, text: str) -> None:
    """Writes the body, after the answer has begun."""
    with writer:
        for line in ["three\n", "two\n", "one\n", text]:
            await writer.write_all(line.encode())
            await asyncio.sleep(0)
