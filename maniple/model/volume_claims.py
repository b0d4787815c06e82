"""PersistentVolumeClaims and PersistentVolumes, and which claims are bound to which volume."""

from maniple.api.keys import Key
from maniple.api.kubernetes import PersistentVolume, PersistentVolumeClaim, Pod
from maniple.model.counting import discard

_NO_CLAIMS: frozenset[Key] = frozenset()


def claims_of(pod: Pod) -> frozenset[Key]:
    """The claims of the pod's volumes."""
    claims = [volume.persistent_volume_claim for volume in pod.spec.volumes if volume.persistent_volume_claim]
    return frozenset([(pod.metadata.namespace, claim.claim_name) for claim in claims]) if claims else _NO_CLAIMS


class Storage:
    def __init__(self) -> None:
        self.claims: dict[Key, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self._bound: dict[str, set[Key]] = {}  # volume -> claims that are bound to it

    def put_claim(self, key: Key, claim: PersistentVolumeClaim | None) -> None:
        old = self.claims.pop(key, None)
        if old is not None:
            discard(self._bound, old.spec.volume_name, key)
        if claim is not None:
            self.claims[key] = claim
            self._bound.setdefault(claim.spec.volume_name, set()).add(key)

    def put_volume(self, name: str, volume: PersistentVolume | None) -> set[Key]:
        """Returns the claims that are bound to the volume."""
        self.volumes.pop(name, None)
        if volume is not None:
            self.volumes[name] = volume
        return self._bound.get(name, set())
