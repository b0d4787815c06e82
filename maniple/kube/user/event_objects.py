"""Events of the events.k8s.io API, as far as they are shown."""

import msgspec


class Event(msgspec.Struct, frozen=True, rename="camel"):
    class Series(msgspec.Struct, frozen=True, rename="camel"):
        count: int = 1
        last_observed_time: str | None = None

    class Regarding(msgspec.Struct, frozen=True):
        kind: str = ""
        name: str = ""
        uid: str = ""

    reason: str = ""
    note: str = ""
    type: str = ""
    event_time: str | None = None
    deprecated_last_timestamp: str | None = None
    series: Series | None = None
    regarding: Regarding = Regarding()

    @property
    def time(self) -> str:
        """When it was last seen."""
        last = self.series.last_observed_time if self.series is not None else None
        return last or self.event_time or self.deprecated_last_timestamp or ""

    @property
    def count(self) -> int:
        return 1 if self.series is None else self.series.count
