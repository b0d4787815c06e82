"""Patches of existing objects. What the server refuses, such as for lack of rights, is not sent again for a while:
callers try in every cycle.
"""

import logging
from typing import Any

import msgspec

from maniple.api.keys import Key
from maniple.kube.serve.metrics import Metrics
from maniple.kube.serve.skip_repeated_writes import Throttle
from maniple.kube.transport.client import MERGE_PATCH, ApiError, Client, NotLeadingError, UnansweredError
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import PODS, ObjectRef, Resource

log = logging.getLogger("maniple.patches")


_REFUSED_S = 10.0
_REMEMBERED = 10_000


class _BoundError(Exception):
    """The pod has a node, or is about to get one."""


class Patches:
    def __init__(self, client: Client, mirror: Mirror, metrics: Metrics) -> None:
        self._client = client
        self._mirror = mirror
        self._metrics = metrics
        self._refused: Throttle[tuple[ObjectRef, str]] = Throttle()  # objects and parts of them
        self._logged: Throttle[tuple[str, str, int]] = Throttle()  # kind, part and status of refusals

    async def write(
        self, resource: Resource, key: Key, body: dict[str, Any], part: str = "", content_type: str = MERGE_PATCH
    ) -> bool:
        """Returns whether the server accepted it. The mirror gets the object from the answer.

        What a pod without a node is told is dropped if the pod is bound by the time that the lane is free.
        """
        if self._refused.is_recent(((resource, key), part), _REFUSED_S):
            return False
        path = resource.path(*key, part)

        def content() -> bytes:
            if resource is PODS and part == "status" and not self._mirror.waits(key):
                raise _BoundError
            return msgspec.json.encode(body)

        try:
            answer = await self._client.write(self._client.statuses, "PATCH", path, content, content_type)
        except ApiError as error:
            if error.status == 404 and part == "status" and resource.is_foreign:
                return await self.write(resource, key, body, "", content_type)  # a CRD without that subresource
            self._metrics.writes.labels(resource.kind, f"status {error.status}").inc()
            if error.status in (404, 409):
                # It is gone, or another has changed it: the watch will report it, and the next cycle looks again.
                log.debug("patch refused", extra={"path": path, "error": str(error)})
            else:
                self._refuse(resource, key, part, error)
        except _BoundError:
            log.debug("patch dropped: the pod is bound", extra={"path": path})
        except (UnansweredError, NotLeadingError) as error:
            log.info("patch not made", extra={"path": path, "error": str(error)})
            self._metrics.writes.labels(resource.kind, "unanswered").inc()
        else:
            self._metrics.writes.labels(resource.kind, "written").inc()
            self._mirror.put_answer(resource, answer)
            return True
        return False

    def _refuse(self, resource: Resource, key: Key, part: str, error: ApiError) -> None:
        if not self._client.may_pass(error):
            if len(self._refused) > _REMEMBERED:
                self._refused.clear()
            self._refused.note(((resource, key), part))
        # What is refused for one object is refused for thousands.
        is_news = self._logged.admit((resource.kind, part, error.status), None, repeat_s=_REFUSED_S)
        level = logging.WARNING if is_news else logging.DEBUG
        log.log(level, "patch refused", extra={"path": resource.path(*key, part), "error": str(error)})
