"""The hash chain."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.event.row import GENESIS
from proctor.evidence.chain import ChainHead, chain_rows, link

ROWS = st.lists(st.dictionaries(st.text(max_size=8).map("f-{}".format), st.text() | st.integers(-9, 9)), max_size=12)


class Tool(msgspec.Struct, rename="camel"):
    call_id: str
    names: set[str]


@settings(deadline=None)
@given(ROWS)
def test_every_row_names_its_number_and_the_line_before_it(rows: list[dict[str, Any]]) -> None:
    head = ChainHead()
    lines = chain_rows(rows, head=head).splitlines()

    links = [GENESIS, *map(link, lines)]
    assert [msgspec.json.decode(line) for line in lines] == [
        {"seq": number, "prev": prev, **row} for number, (prev, row) in enumerate(zip(links, rows, strict=False), 1)
    ]
    assert head == ChainHead(rows=len(rows), prev=links[-1])


@settings(deadline=None)
@given(ROWS, st.integers(0, 12))
def test_the_bytes_do_not_depend_on_how_rows_were_batched(rows: list[dict[str, Any]], cut: int) -> None:
    head = ChainHead()
    batched = chain_rows(rows[:cut], head=head) + chain_rows(rows[cut:], head=head)

    assert batched == chain_rows(rows, head=ChainHead())


def test_a_struct_is_chained_as_it_is_spelled_on_disk_and_what_has_no_order_gets_one() -> None:
    row = Tool(call_id="c1", names={"b", "c", "a"})

    line = chain_rows([row], head=ChainHead())

    assert line == b'{"seq":1,"prev":"%b","callId":"c1","names":["a","b","c"]}\n' % GENESIS.encode()


def test_a_row_without_fields_is_still_a_row() -> None:
    assert chain_rows([{}], head=ChainHead()) == b'{"seq":1,"prev":"%b"}\n' % GENESIS.encode()
