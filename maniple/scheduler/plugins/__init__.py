"""The built-in plugins by their names in a policy file. A new one is one file here, an import and an entry below.

Plugins of other packages are entry points of the group `maniple.plugins`; examples/plugin is a template.
"""

from typing import Protocol

from maniple.scheduler.framework.hooks import Hooks
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.registry import Registry
from maniple.scheduler.framework.session import Session
from maniple.scheduler.plugins.conformance import Conformance
from maniple.scheduler.plugins.consolidation import Consolidation
from maniple.scheduler.plugins.drf import Drf
from maniple.scheduler.plugins.elastic import ElasticPlugin
from maniple.scheduler.plugins.fragmentation import Fragmentation
from maniple.scheduler.plugins.gang import Gang
from maniple.scheduler.plugins.nodeorder import NodeOrder
from maniple.scheduler.plugins.predicates import Predicates
from maniple.scheduler.plugins.priority import Priority
from maniple.scheduler.plugins.proportion import Proportion
from maniple.scheduler.plugins.reservation import ReservationPlugin
from maniple.scheduler.plugins.topology import TopologyPlugin


class Plugin(Protocol):
    """Policy. Reads its arguments once, and gives each session its callbacks.

    A plugin that looks at labels or annotations of pods and jobs names them in an attribute `reads: Reads`, of the
    class or set by the constructor. Groups and jobs carry only the keys that plugins name.
    """

    def __init__(self, arguments: Arguments) -> None: ...

    def open(self, session: Session) -> Hooks: ...


PLUGINS: dict[str, type[Plugin]] = {
    "priority": Priority,
    "gang": Gang,
    "conformance": Conformance,
    "drf": Drf,
    "predicates": Predicates,
    "proportion": Proportion,
    "nodeorder": NodeOrder,
    "topology": TopologyPlugin,
    "elastic": ElasticPlugin,
    "reservation": ReservationPlugin,
    "consolidation": Consolidation,
    "fragmentation": Fragmentation,
}
REGISTRY: Registry[Plugin] = Registry("plugin", "maniple.plugins", PLUGINS)
