"""The CustomResourceDefinitions of our kinds, made from types.py: fields, bounds, defaults and descriptions are written
once.

What types cannot express is here: names, printer columns, keyed lists, and rules between fields in CEL.
validate/ours.py repeats the rules for objects that have not passed an API server.
"""

from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from maniple.api import types
from maniple.api.kubernetes import PodSpec
from maniple.api.meta import ObjectMeta

Schema = dict[str, Any]

# quantity.py's grammar without the minus sign.
QUANTITY_PATTERN = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$"
# The API server estimates the worst cost of a CEL rule, so everything that rules read must be bounded.
MAX_RESOURCES = 64
MAX_QUANTITY_LENGTH = 64


class Kind(NamedTuple):
    type: type[msgspec.Struct]
    plural: str
    short_name: str
    scope: str


def _given(**entries: Any) -> Schema:
    return {key: value for key, value in entries.items() if value not in (None, "", [])}


def _column(name: str, type_: str, path: str, *, wide: bool = False, description: str = "") -> Schema:
    return _given(name=name, type=type_, description=description, jsonPath=path, priority=1 if wide else None)


def _gpus(name: str, field: str, description: str) -> Schema:
    """A column shows the first match of its path: of several vendors' GPUs the first that the queue has."""
    resources = ",".join("'" + resource.replace(".", r"\.") + "'" for resource in types.GPU_RESOURCES)
    return _column(name, "string", f".status.{field}[{resources}]", description=description)


def _rule(rule: str, message: str, field: str = "") -> Schema:
    """A CEL rule on one struct. Its error is shown at `field`."""
    return _given(rule=rule, message=message, fieldPath=field)


# Of the status: an object that names no queue is in one too.
QUEUE = _column("Queue", "string", ".status.queue")
AGE = _column("Age", "date", ".metadata.creationTimestamp")
REASON = _column("Reason", "string", '.status.conditions[?(@.type=="Scheduled")].reason')
MESSAGE = _column("Message", "string", '.status.conditions[?(@.type=="Scheduled")].message', wide=True)

KINDS = (
    Kind(types.Queue, "queues", "mq", "Cluster"),
    Kind(types.PodGroup, "podgroups", "mpg", "Namespaced"),
    Kind(types.ElasticJob, "elasticjobs", "ej", "Namespaced"),
    Kind(types.Topology, "topologies", "mtopo", "Cluster"),
)

COLUMNS: dict[type, tuple[Schema, ...]] = {
    types.Queue: (
        _column("Parent", "string", ".spec.parent"),
        _column("Weight", "integer", ".spec.weight"),
        _gpus("Deserved-GPUs", "deserved", "GPUs that are its fair share now."),
        _gpus("Allocated-GPUs", "allocated", "GPUs that its pods hold now."),
        _column("Running", "integer", ".status.runningJobs"),
        _column("Pending", "integer", ".status.pendingJobs"),
        _column("Priority", "integer", ".spec.priority", wide=True),
        _column("Reclaimable", "boolean", ".spec.reclaimable", wide=True),
        AGE,
    ),
    types.PodGroup: (
        QUEUE,
        _column("Phase", "string", ".status.phase"),
        _column("Min", "integer", ".spec.minMember"),
        _column("Running", "integer", ".status.running"),
        _column("Pending", "integer", ".status.pending"),
        REASON,
        _column("Priority-Class", "string", ".spec.priorityClassName", wide=True),
        _column("Preemptable", "boolean", ".spec.preemptable", wide=True),
        AGE,
        MESSAGE,
    ),
    types.ElasticJob: (
        QUEUE,
        _column("Phase", "string", ".status.phase"),
        _column("Min", "integer", ".spec.roles[0].min", description="Of the first role."),
        _column("Max", "integer", ".spec.roles[0].max", description="Of the first role."),
        _column("Target", "integer", ".status.target[0].replicas", description="Of the first role."),
        _column("Running", "integer", ".status.replicas.running"),
        _column("Pending", "integer", ".status.replicas.pending"),
        REASON,
        _column("Suspend", "boolean", ".spec.suspend", wide=True),
        _column("Priority-Class", "string", ".spec.priorityClassName", wide=True),
        _column("Framework", "string", ".spec.framework", wide=True),
        _column("Step", "integer", ".status.progress.step", wide=True),
        _column("Resizes", "integer", ".status.resizes", wide=True),
        _column("Restarts", "integer", ".status.restarts", wide=True),
        AGE,
        MESSAGE,
    ),
    types.Topology: (
        # kubectl shows only the first match of a path, so [*] would not list them.
        _column("Widest", "string", ".spec.levels[0].name"),
        _column("Narrowest", "string", ".spec.levels[-1:].name"),
        AGE,
    ),
}

# The keys of lists. The API server refuses repeated keys, and merges the items of two writers by key. The levels of a
# Topology have none, because their order has a meaning.
LIST_KEYS: dict[type, str] = {
    types.ElasticRole: "name",
    types.MeasuredSpeed: "replicas",
    types.PodGroupRole: "name",
    types.RoleTarget: "role",
    types.SpeedupPoint: "replicas",
    types.StatusCondition: "type",
}


def _as_quantity(value: str) -> str:
    # Cheaper than quantity(string(value)), which the API server counts as reading the text twice.
    return f"(type({value}) == string ? quantity({value}) : quantity('0').add({value}))"


# Queues, priorities and sizes may change while a job runs: the next cycle decides again. What existing pods were made
# from must not.
RULES: dict[type, tuple[Schema, ...]] = {
    types.Queue: (
        _rule(
            "self.spec.?parent.orValue('') != self.metadata.name",
            "a queue must not be its own parent",
            ".spec.parent",
        ),
    ),
    types.QueueSpec: (
        _rule(
            "!has(self.guaranteed) || !has(self.limit) || self.guaranteed.all(r, !(r in self.limit) || "
            f"{_as_quantity('self.guaranteed[r]')}.compareTo({_as_quantity('self.limit[r]')}) <= 0)",
            "guaranteed must be at most limit, resource by resource",
            ".guaranteed",
        ),
    ),
    types.PodGroupSpec: (
        _rule(
            "!has(self.roles) || self.roles.map(r, r.minMember).sum() <= self.minMember",
            "minMember must be at least the sum of its roles' minMember",
            ".minMember",
        ),
    ),
    types.ElasticJob: (
        # The name is the value of the pods' label maniple.dev/job, and label values are shorter than names.
        _rule("self.metadata.name.size() <= 63", "the name of an ElasticJob must have at most 63 characters"),
        # torchrun's replicas find each other by host name, and not every object's name is one.
        _rule(
            "self.spec.framework != 'torchrun' || self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "with framework torchrun the name of an ElasticJob must be lower-case letters, digits and '-', "
            "and begin with a letter: replicas look for each other by name",
        ),
        _rule(
            "self.spec.framework != 'torchrun' || self.spec.roles.all(r, self.metadata.name.size() + r.name.size() + "
            "string(r.max > 0 ? r.max - 1 : 0).size() + 2 <= 63)",
            "with framework torchrun the names of pods, <job>-<role>-<index>, must have at most 63 characters: "
            "shorten the name of the job or of the role",
            ".spec.roles",
        ),
    ),
    types.ElasticJobSpec: (
        _rule("self.roles.exists(r, r.min >= 1)", "at least one role must have a min of 1 or more", ".roles"),
        _rule(
            "self.roles.map(r, r.max).sum() <= 100000",
            "the max of all roles together must be at most 100000",
            ".roles",
        ),
        _rule(
            "self.roles.size() == oldSelf.roles.size() && self.roles.all(r, oldSelf.roles.exists(o, o.name == r.name))",
            "roles must not be added, removed or renamed",
            ".roles",
        ),
        _rule("self.framework == oldSelf.framework", "framework must not change", ".framework"),
    ),
    # Steps need not lead from min to max exactly: max is still a limit, and users who lower it need not calculate.
    types.ElasticRole: (
        _rule("self.min <= self.max", "max must be at least min", ".max"),
        _rule(
            "!has(self.pin) || (self.min <= self.pin && self.pin <= self.max)",
            "pin must be at least min and at most max",
            ".pin",
        ),
    ),
    # Pods survive a resize, so a changed template would give a job two kinds of pods. A field of the pod spec that is
    # replaced by another is not noticed: of fields outside the schema the API server compares the number, and those
    # that both versions have.
    types.PodTemplate: (_rule("self == oldSelf", "the template of a role must not change"),),
    types.TopologySpec: (
        _rule(
            "self.levels.all(a, self.levels.exists_one(b, b.name == a.name))",
            "the names of the levels must differ",
            ".levels",
        ),
        _rule(
            "self.levels.all(a, self.levels.exists_one(b, b.nodeLabel == a.nodeLabel))",
            "the node labels of the levels must differ",
            ".levels",
        ),
    ),
}


def crds() -> list[Schema]:
    """The CustomResourceDefinition of each kind, as plain dictionaries."""
    return [_crd(kind) for kind in KINDS]


def _crd(kind: Kind) -> Schema:
    name = kind.type.__name__
    version: Schema = {
        "name": types.VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": list(COLUMNS[kind.type]),
        "schema": {"openAPIV3Schema": _schema(inspect.type_info(kind.type), defaults=True)},
    }
    if "status" in kind.type.__struct_fields__:
        version["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{types.GROUP}"},
        "spec": {
            "group": types.GROUP,
            "scope": kind.scope,
            "names": {
                "kind": name,
                "listKind": f"{name}List",
                "plural": kind.plural,
                "singular": name.lower(),
                "shortNames": [kind.short_name],
                "categories": ["maniple"],
            },
            "versions": [version],
        },
    }


def _schema(info: inspect.Type, *, defaults: bool) -> Schema:
    match info:
        case inspect.Metadata(type=inner, extra_json_schema=extra):
            given = extra or {}
            return {**given, **_schema(inner, defaults=defaults), **given}  # first in order, and it wins
        case inspect.StructType():
            return _object(info, defaults=defaults)
        case inspect.UnionType(types=(inner, inspect.NoneType())):
            return {**_schema(inner, defaults=defaults), "nullable": True}
        case inspect.DictType(value_type=inspect.UnionType()):
            return _resource_list(info.max_length)
        case inspect.DictType(value_type=value):
            return {"type": "object", "additionalProperties": _schema(value, defaults=defaults)}
        case inspect.VarTupleType(item_type=item):
            return _list(info, _schema(item, defaults=defaults))
        case inspect.LiteralType(values=values):
            return {"type": "string", "enum": list(values)}
        case inspect.DateTimeType():
            return {"type": "string", "format": "date-time"}
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.IntType():
            small = info.le is not None and info.le < 2**31
            return {"type": "integer", "format": "int32" if small else "int64", **_bounds(info)}
        case inspect.FloatType():
            return {"type": "number", **_bounds(info)}
        case inspect.StrType():
            return _given(type="string", minLength=info.min_length, maxLength=info.max_length, pattern=info.pattern)
    raise TypeError(f"no schema for {info}")


def _object(info: inspect.StructType, *, defaults: bool) -> Schema:
    if info.cls is ObjectMeta:
        return {"type": "object"}  # the API server checks it
    if info.cls is PodSpec:
        # Kubernetes checks it when pods are created. A copy of its schema would be large and become outdated.
        return {
            "description": "The pods' spec, as in Kubernetes.",
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
        }
    # A status has no defaults: a missing value means that it has not been observed.
    properties = {
        field.encode_name: _property(field, defaults=defaults and field.name != "status") for field in info.fields
    }
    if "metadata" in properties and info.cls is not types.PodTemplate:
        properties = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, **properties}
    return _given(
        # Its own docstring, not that of the base. On one line, because Python 3.13 indents differently.
        description=" ".join((info.cls.__dict__.get("__doc__") or "").split()),
        type="object",
        required=[f.encode_name for f in info.fields if f.required and f.name != "metadata"],
        properties=properties,
        **{"x-kubernetes-validations": list(RULES.get(info.cls, ()))},
    )


def _property(field: inspect.Field, *, defaults: bool) -> Schema:
    schema = _schema(field.type, defaults=defaults)
    if not defaults or field.required or field.default_factory is not msgspec.NODEFAULT:
        return schema  # the only factory in use is dict, and an empty one is no default
    value = field.default
    if isinstance(value, msgspec.Struct):
        if value != type(value)():
            raise TypeError(f"{field.name}: only a struct without arguments can be a default in a CRD")
        # The API server fills the empty object with the defaults inside, if there are any.
        return {**schema, "default": {}} if any("default" in p for p in schema["properties"].values()) else schema
    return schema if value in (None, "", ()) else {**schema, "default": value}


def _list(info: inspect.VarTupleType, items: Schema) -> Schema:
    item = info.item_type.cls if isinstance(info.item_type, inspect.StructType) else None
    merge: Schema = {"x-kubernetes-list-type": "atomic"}
    if item in LIST_KEYS:
        merge = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [LIST_KEYS[item]]}
    return {**_given(type="array", minItems=info.min_length, maxItems=info.max_length, items=items), **merge}


def _resource_list(most: int | None) -> Schema:
    quantity: Schema = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "minimum": 0,
        "maxLength": MAX_QUANTITY_LENGTH,
        "pattern": QUANTITY_PATTERN,
        "x-kubernetes-int-or-string": True,
    }
    return {"type": "object", "maxProperties": most or MAX_RESOURCES, "additionalProperties": quantity}


def _bounds(info: inspect.IntType | inspect.FloatType) -> Schema:
    return _given(
        minimum=info.gt if info.ge is None else info.ge,
        exclusiveMinimum=None if info.gt is None else True,
        maximum=info.lt if info.le is None else info.le,
        exclusiveMaximum=None if info.lt is None else True,
    )
