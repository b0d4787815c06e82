from maniple.api.phases import FINISHED
from maniple.elastic.transitions import TRANSITIONS
from tools.write_diagram import PAGE, renewed


def test_the_transitions_in_the_docs_are_up_to_date() -> None:
    page = PAGE.read_text()
    assert renewed(page) == page, "make diagram"


def test_the_docs_describe_every_transition() -> None:
    page = PAGE.read_text()
    assert all(transition.description in page for transition in TRANSITIONS)


def test_transitions_have_different_names_and_none_leaves_a_finished_phase() -> None:
    assert len({transition.name for transition in TRANSITIONS}) == len(TRANSITIONS)
    assert not {source for transition in TRANSITIONS for source in transition.sources} & set(FINISHED)
