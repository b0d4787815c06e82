"""Small changes of objects that are there: known to the Cache at once, written to the server, undone if it refuses.

Between a write and the watch that tells of it there may be a cycle, and it must know already.
"""

import logging
from typing import Any

import msgspec

from maniple.api.decode.server_objects import read_live
from maniple.kube.serve.metrics import Metrics
from maniple.kube.transport.client import MERGE_PATCH, ApiError, Client, Lane, NotLeadingError, UnansweredError
from maniple.kube.transport.mirror import Key, Mirror
from maniple.kube.transport.resource_kinds import Resource

log = logging.getLogger("maniple.patches")


class Patches:
    def __init__(self, client: Client, mirror: Mirror, metrics: Metrics) -> None:
        self._client = client
        self._mirror = mirror
        self._metrics = metrics

    async def write(
        self,
        resource: Resource,
        key: Key,
        body: dict[str, Any],
        part: str = "",
        content_type: str = MERGE_PATCH,
        lane: Lane | None = None,
    ) -> bool:
        """Whether the server took it. What it answers is what we know of the object from then on."""
        lane = lane or self._client.statuses
        path = resource.path(*key, part)
        try:
            answer = await self._client.write(lane, "PATCH", path, msgspec.json.encode(body), content_type)
        except ApiError as error:
            if error.status == 404 and part == "status" and resource.is_foreign:
                return await self.write(resource, key, body, "", content_type, lane)  # a CRD without that part
            # Gone, or changed by another: what is there now will come by the watch, and be looked at anew.
            level = logging.DEBUG if error.status in (404, 409) else logging.WARNING
            log.log(level, "patch refused", extra={"path": path, "error": str(error)})
            self._metrics.writes.labels(resource.kind, f"status {error.status}").inc()
        except (UnansweredError, NotLeadingError) as error:
            log.info("patch not made", extra={"path": path, "error": str(error)})
            self._metrics.writes.labels(resource.kind, "unanswered").inc()
        else:
            self._metrics.writes.labels(resource.kind, "written").inc()
            self._mirror.put(resource, read_live(answer, resource.struct))
            return True
        return False

    async def assume(self, resource: Resource, key: Key, body: dict[str, Any], part: str = "") -> bool:
        """The same, for a change that the Cache has been told of already: it is told again what was, if this fails."""
        taken = await self.write(resource, key, body, part)
        if not taken:
            self._mirror.tell_again(resource, key)
        return taken
