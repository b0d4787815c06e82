"""Writes the transitions of an elastic job into docs/objects/elasticjob.md: `make diagram`."""

from pathlib import Path

from maniple.elastic.transition_diagram import BEGIN, END, transitions

PAGE = Path(__file__).resolve().parent.parent / "docs" / "objects" / "elasticjob.md"


def renewed(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + transitions() + after


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
