"""Refusals of the API server, as users read them."""

from __future__ import annotations

import pytest

from maniple.kube.transport.client import ApiError, Cause
from maniple.kube.user.client import refused


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ApiError(
                422, "Invalid", "…", causes=(Cause("spec.roles[0].max", "Invalid value: 3: max must be at least min"),)
            ),
            "spec.roles[0].max: max must be at least min, found 3",
        ),
        (
            ApiError(
                422,
                "Invalid",
                "…",
                causes=(Cause("<nil>", "Invalid value: null: some validation rules were not checked"),),
            ),
            "some validation rules were not checked, found null",
        ),
        (
            ApiError(422, "Invalid", "…", causes=(Cause("spec.containers[0].image", "Required value"),)),
            "spec.containers[0].image: Required value",
        ),
        (ApiError(403, "Forbidden", 'User "a" cannot'), 'you may not do this: User "a" cannot'),
        (ApiError(401, "Unauthorized", ""), "log in again"),
        (ApiError(503, "ServiceUnavailable", "no leader"), "try again: no leader"),
    ],
)
def test_a_refusal_of_the_server_names_object_and_field(error: ApiError, message: str) -> None:
    (said,) = refused(error, "ElasticJob ml/bert").messages
    assert said.startswith("ElasticJob ml/bert: ")
    assert message in said
