"""JSON-RPC over lines: what we write we read back, and what is none of it is told apart."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.protocol import jsonrpc
from proctor.protocol.jsonrpc import Failure

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
IDS = st.integers(-(2**63), 2**63 - 1) | st.text(max_size=9)


def value(raw: msgspec.Raw | msgspec.UnsetType) -> Any:
    assert isinstance(raw, msgspec.Raw)
    return msgspec.json.decode(raw)


@given(IDS, st.text(min_size=1), JSON)
def test_a_request_reads_back_as_what_was_asked(id_: int | str, method: str, params: Any) -> None:
    line = jsonrpc.request(id_, method, params)
    message = jsonrpc.decode(line)
    assert message is not None
    assert b"\n" not in line
    assert (message.is_request, message.is_reply) == (True, False)
    assert (message.id, message.method, value(message.params)) == (id_, method, params)


@given(IDS, JSON)
def test_a_reply_reads_back_as_what_was_answered(id_: int | str, result: Any) -> None:
    message = jsonrpc.decode(jsonrpc.reply(id_, result))
    assert message is not None
    assert (message.is_request, message.is_reply) == (False, True)
    assert (message.id, value(message.result), message.error) == (id_, result, None)


@given(IDS, st.integers(-(2**31), 2**31), st.text())
def test_an_error_reads_back_as_what_was_refused(id_: int | str, code: int, what: str) -> None:
    message = jsonrpc.decode(jsonrpc.error_reply(id_, code, what))
    assert message is not None
    assert (message.is_reply, message.error) == (True, Failure(message=what, code=code))


@pytest.mark.parametrize("params", [None, {"a": 1}])
def test_a_notification_has_no_id(params: Any) -> None:
    message = jsonrpc.decode(jsonrpc.notification("initialized", params))
    assert message is not None
    assert (message.id, message.method, message.is_request, message.is_reply) == (None, "initialized", False, False)


@given(st.binary() | JSON.map(msgspec.json.encode))
def test_any_bytes_are_a_message_or_none(line: bytes) -> None:
    message = jsonrpc.decode(line)
    assert message is None or isinstance(msgspec.json.decode(line), dict)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b'{"id":true}',
        b'{"id":1.5,"result":1}',
        b'{"method":1}',
        b'{"id":1,"error":"text"}',
        b'{"id":1,"result":"\xff"}',
        b'{"id":1}{"id":2}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_message_of_the_protocol_is_none(line: bytes) -> None:
    assert jsonrpc.decode(line) is None


def test_an_overload_reply_reads_though_its_data_is_null() -> None:
    message = jsonrpc.decode(
        b'{"id":7,"error":{"code":-32001,"message":"Server overloaded; retry later.","data":null}}'
    )
    assert message is not None
    assert message.error == Failure(message="Server overloaded; retry later.", code=-32001)
