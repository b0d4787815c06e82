"""The transitions for people: a diagram and a table, as docs/objects/elasticjob.md shows them."""

from maniple.api.phases import FINISHED
from maniple.elastic.state import ACTIVE, LIVE, Phase
from maniple.elastic.transitions import TRANSITIONS, Transition

BEGIN = "<!-- The transitions: made from maniple/elastic/transitions.py by `make diagram`. -->"
END = "<!-- End of the transitions. -->"
_SHORT: dict[tuple[Phase, ...], str] = {
    LIVE: "any but Suspended",
    ACTIVE: "Running, Growing, Shrinking",
    ("Pending", "Starting", *ACTIVE): "any but Restarting, Suspended",
}


def transitions() -> str:
    """Both, in Markdown."""
    return "\n".join((BEGIN, "", "```mermaid", *_diagram(), "```", "", *_table(), "", END))


def _diagram() -> list[str]:
    """One arrow for each pair of phases, with the names of its transitions. Those to an end are only in the table."""
    pairs: dict[tuple[str, str], list[str]] = {}
    for transition in TRANSITIONS:
        if transition.sources == LIVE or transition.target in FINISHED:
            continue
        for source in transition.sources:
            if source != transition.target:
                pairs.setdefault((source or "[*]", transition.target), []).append(transition.name)
    arrows = (f"    {source} --> {target}: {', '.join(names)}" for (source, target), names in pairs.items())
    return ["stateDiagram-v2", *arrows]


def _table() -> list[str]:
    rows = (f"| {each.name} | {_sources(each)} | {each.description} | {each.target} |" for each in TRANSITIONS)
    return ["| transition | from | when | to |", "|---|---|---|---|", *rows]


def _sources(transition: Transition) -> str:
    return _SHORT.get(transition.sources) or ", ".join(transition.sources) or "–"
