from maniple.elastic.transitions import TABLE
from tools.diagram import PAGE, renewed


def test_the_transitions_in_the_docs_are_those_of_the_table() -> None:
    page = PAGE.read_text()
    assert renewed(page) == page, "make diagram"


def test_every_row_is_told_of() -> None:
    page = PAGE.read_text()
    assert all(row.words in page for row in TABLE)


def test_rows_have_names_of_their_own_and_none_leaves_an_end() -> None:
    assert len({row.name for row in TABLE}) == len(TABLE)
    assert not {source for row in TABLE for source in row.sources} & {"Succeeded", "Failed"}
