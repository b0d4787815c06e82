"""Refuses an option that is given twice where one value counts: the first would be ignored silently."""

from collections import Counter

import click


def check_given_once(name: str, command: click.Command, args: list[str], parent: click.Context) -> None:
    """Raises UsageError. Everything else that is wrong with `args` is left to the command itself."""
    context = click.Context(command, parent, info_name=name, resilient_parsing=True)
    try:
        _, rest, order = command.make_parser(context).parse_args(args=list(args))
    except click.UsageError:
        return
    counts = Counter(param for param in order if isinstance(param, click.Option) and _has_one_value(param))
    for option, count in counts.items():
        if count > 1:
            raise click.UsageError(f"Option '{option.opts[-1]}' is given {count} times; expected once.", context)
    if isinstance(command, click.Group) and rest:
        inner = command.get_command(context, rest[0])
        if inner is not None:
            check_given_once(rest[0], inner, rest[1:], context)


def _has_one_value(option: click.Option) -> bool:
    return not (option.multiple or option.is_flag or option.count)
