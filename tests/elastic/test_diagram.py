from maniple.elastic.transitions import TRANSITIONS
from tools.diagram import PAGE, renewed


def test_the_transitions_in_the_docs_are_those_of_the_table() -> None:
    page = PAGE.read_text()
    assert renewed(page) == page, "make diagram"


def test_every_row_is_told_of() -> None:
    page = PAGE.read_text()
    assert all(row.description in page for row in TRANSITIONS)


def test_rows_have_names_of_their_own_and_none_leaves_an_end() -> None:
    assert len({row.name for row in TRANSITIONS}) == len(TRANSITIONS)
    assert not {source for row in TRANSITIONS for source in row.sources} & {"Succeeded", "Failed"}
