"""Patches of existing objects. The Cache has them at once, and they are undone if the server refuses.

A cycle may run between a write and the watch event of it, and must know of the write.
"""

import logging
from typing import Any

import msgspec

from maniple.api.keys import Key
from maniple.kube.serve.metrics import Metrics
from maniple.kube.transport.client import MERGE_PATCH, ApiError, Client, NotLeadingError, UnansweredError
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import PODS, Resource

log = logging.getLogger("maniple.patches")


class _BoundError(Exception):
    """The pod has a node, or is about to get one."""


class Patches:
    def __init__(self, client: Client, mirror: Mirror, metrics: Metrics) -> None:
        self._client = client
        self._mirror = mirror
        self._metrics = metrics

    async def write(
        self, resource: Resource, key: Key, body: dict[str, Any], part: str = "", content_type: str = MERGE_PATCH
    ) -> bool:
        """Returns whether the server accepted it. The mirror gets the object from the answer.

        What a pod without a node is told is dropped if the pod is bound by the time that the lane is free.
        """
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
            # It is gone, or another has changed it: the watch will report it, and the next cycle looks again.
            level = logging.DEBUG if error.status in (404, 409) else logging.WARNING
            log.log(level, "patch refused", extra={"path": path, "error": str(error)})
            self._metrics.writes.labels(resource.kind, f"status {error.status}").inc()
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

    async def assume(self, resource: Resource, key: Key, body: dict[str, Any], part: str = "") -> bool:
        """Writes a change that the Cache has already. If the write fails, the Cache gets the object as it was."""
        is_written = await self.write(resource, key, body, part)
        if not is_written:
            self._mirror.tell_again(resource, key)
        return is_written
