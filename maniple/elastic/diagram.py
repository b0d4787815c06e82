"""The table of transitions for people: a diagram and a list, as docs/objects/elasticjob.md has them."""

from maniple.elastic.state import ACTIVE, LIVE, OVER, Phase
from maniple.elastic.transitions import TABLE, Row

BEGIN = "<!-- The transitions: made from maniple/elastic/transitions.py by `make diagram`. -->"
END = "<!-- End of the transitions. -->"
_SHORT: dict[tuple[Phase, ...], str] = {
    LIVE: "any but Suspended",
    ACTIVE: "Running, Growing, Shrinking",
    ("Pending", "Starting", *ACTIVE): "any but Restarting, Suspended",
}


def transitions() -> str:
    """Both, in Markdown."""
    return "\n".join((BEGIN, "", "```mermaid", *_diagram(), "```", "", *_list(), "", END))


def _diagram() -> list[str]:
    """One arrow for each pair of states, with the names of its rows; those that lead to an end are in the list."""
    pairs: dict[tuple[str, str], list[str]] = {}
    for row in TABLE:
        if row.sources == LIVE or row.target in OVER:
            continue
        for source in row.sources:
            if source != row.target:
                pairs.setdefault((source or "[*]", row.target), []).append(row.name)
    arrows = (f"    {source} --> {target}: {', '.join(names)}" for (source, target), names in pairs.items())
    return ["stateDiagram-v2", *arrows]


def _list() -> list[str]:
    lines = ["| row | from | when | to |", "|---|---|---|---|"]
    return [*lines, *(f"| {row.name} | {_sources(row)} | {row.words} | {row.target} |" for row in TABLE)]


def _sources(row: Row) -> str:
    return _SHORT.get(row.sources) or ", ".join(row.sources) or "–"
