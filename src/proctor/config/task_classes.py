"""The task classes of the config, merged with the built-in ones."""

from collections.abc import Iterator, Mapping

from msgspec import structs

from proctor.config.model import Config, ConfigFile
from proctor.errors import InputError
from proctor.spec.collect_errors import raise_collected
from proctor.spec.literal import LITERAL_MESSAGE, LITERAL_SUGGESTION, literal_secrets
from proctor.spec.probe_options import ProbeOptions
from proctor.spec.source_file import FindKind, SourceFile, decode_tree, find_no_kind
from proctor.spec.suggest import suggest
from proctor.spec.task_classes import BUILT_IN_CLASSES, TaskClass, is_missing_key, known_kinds
from proctor.spec.tree import Node, child_path


def find_task_classes(config: Config, *, find_kind: FindKind = find_no_kind) -> Mapping[str, TaskClass]:
    """Return all task classes by name. If two files define a class, the first one wins.

    `find_kind` returns the structs of kinds of probe that are not built in.

    Raises InputError with all errors in the classes of the files.
    """
    found = dict(BUILT_IN_CLASSES)
    errors: list[InputError] = []
    for file in reversed(config.files):
        for name, settings in file.value.task_classes.items():
            errors += _errors(file, name, settings, find_kind)
            found[name] = _merge(BUILT_IN_CLASSES.get(name), settings)
    if errors:
        raise_collected(errors)
    return found


def _merge(built_in: TaskClass | None, settings: TaskClass) -> TaskClass:
    if built_in is None:
        return settings
    return structs.replace(built_in, criteria={**built_in.criteria, **settings.criteria}, keys=settings.keys)


def _errors(file: SourceFile[ConfigFile], name: str, settings: TaskClass, find_kind: FindKind) -> Iterator[InputError]:
    where = child_path("task_classes", name)
    known = known_kinds()
    built_in = BUILT_IN_CLASSES.get(name)
    if built_in is not None and settings.kinds:
        what = f"`{name}` is a built-in class, whose kinds cannot be changed"
        suggestion = "Remove `kinds`, or give the class another name."
        yield file.error("spec.unsupported", what, key=f"{where}.kinds", suggestion=suggestion)
    if built_in is None and not settings.kinds:
        what = f"the task class `{name}` has no kinds"
        suggestion = 'Add `kinds = ["headless_run"]`, or use the name of a built-in class.'
        yield file.error("spec.missing-key", what, key=f"{where}.kinds", suggestion=suggestion)
    for at, kind in enumerate(settings.kinds):
        try:
            if kind not in known and (plugin := find_kind(kind)) is not None:
                known[kind] = plugin
        except InputError as error:
            yield file.error(error.code, error.what, key=f"{where}.kinds[{at}]", suggestion=error.suggestion)
            continue
        if kind not in known:
            what = f"unknown kind of probe `{kind}`"
            yield file.error(
                "spec.type", what, key=f"{where}.kinds[{at}]", suggestion=suggest(kind, known, noun="Kinds")
            )
    for key in literal_secrets(settings.keys, path=f"{where}.keys"):
        yield file.error("spec.secret-literal", LITERAL_MESSAGE, key=key, suggestion=LITERAL_SUGGESTION)
    kinds = settings.kinds if built_in is None else built_in.kinds
    for group in ("criteria", "keys"):
        for kind in getattr(settings, group):
            if kind not in kinds:
                what = f"the task class `{name}` has no kind `{kind}`"
                key = child_path(f"{where}.{group}", kind)
                yield file.error("spec.unknown-key", what, key=key, suggestion=suggest(kind, kinds, noun="Its kinds"))
    for kind in settings.keys:
        if kind in kinds and kind in known:
            yield from _key_errors(file, child_path(f"{where}.keys", kind), ("task_classes", name, "keys", kind), known)


def _key_errors(
    file: SourceFile[ConfigFile], where: str, path: tuple[str, ...], known: Mapping[str, type[ProbeOptions]]
) -> Iterator[InputError]:
    """Yield what is wrong with the keys of a kind. A key that is missing is an error only of missions that need it."""
    node = file.root
    for step in path:
        assert isinstance(node.value, dict), "the file was decoded"
        node = node.value[step]
    assert isinstance(node.value, dict), "the file was decoded"
    kind = path[-1]
    tagged = Node(line=node.line, value={**node.value, "kind": Node(line=node.line, value=kind)})
    try:
        decode_tree(tagged, known[kind], file=file.file)
    except InputError as error:
        for each in error.all_errors:
            if not is_missing_key(each):
                yield InputError(
                    each.code,
                    each.what,
                    file=each.file,
                    line=each.line,
                    key=f"{where}.{each.key}" if each.key else where,
                    suggestion=each.suggestion,
                )
