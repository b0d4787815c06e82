"""Claims and volumes, and who is concerned when one of them changes."""

from maniple.api.kubernetes import PersistentVolume, PersistentVolumeClaim, Pod

ClaimKey = tuple[str, str]  # namespace, name


def claims_of(pod: Pod) -> frozenset[ClaimKey]:
    """The claims that say where the pod may go, if it still has to go anywhere."""
    if not pod.spec.volumes or pod.spec.node_name:
        return frozenset()
    claims = (volume.persistent_volume_claim for volume in pod.spec.volumes)
    return frozenset((pod.metadata.namespace, claim.claim_name) for claim in claims if claim)


class Storage:
    def __init__(self) -> None:
        self.claims: dict[ClaimKey, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self._bound: dict[str, set[ClaimKey]] = {}  # volume -> claims that are bound to it

    def put_claim(self, key: ClaimKey, claim: PersistentVolumeClaim | None) -> None:
        old = self.claims.pop(key, None)
        if old is not None:
            self._bound[old.spec.volume_name].discard(key)
            if not self._bound[old.spec.volume_name]:
                del self._bound[old.spec.volume_name]
        if claim is not None:
            self.claims[key] = claim
            self._bound.setdefault(claim.spec.volume_name, set()).add(key)

    def put_volume(self, name: str, volume: PersistentVolume | None) -> set[ClaimKey]:
        """The claims that are bound to it."""
        self.volumes.pop(name, None)
        if volume is not None:
            self.volumes[name] = volume
        return self._bound.get(name, set())
