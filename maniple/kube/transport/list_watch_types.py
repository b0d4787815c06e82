"""What the API server wraps objects in: pages of a list, and events of a watch."""

import msgspec


class Page(msgspec.Struct):
    class Metadata(msgspec.Struct, frozen=True):
        version: str = msgspec.field(name="resourceVersion", default="")
        rest: str = msgspec.field(name="continue", default="")

    metadata: Metadata = Metadata()
    items: list[msgspec.Raw] | None = None


class Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


PAGES = msgspec.json.Decoder(Page)
EVENTS = msgspec.json.Decoder(Event)
