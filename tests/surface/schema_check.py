"""As much of JSON Schema as our own schemas use, for tests that hold real files against them."""

from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_KNOWN = set("$ref $defs type properties required additionalProperties items anyOf enum const default".split())
_KNOWN |= set("title description discriminator minLength minItems minimum maximum pattern".split())


def misfits(value: Any, schema: dict[str, Any], whole: dict[str, Any], at: str = "$") -> list[str]:
    """Where a value is not what the schema says, in words; `whole` is what `$ref`s are found in."""
    assert set(schema) <= _KNOWN, f"{at}: a schema with {set(schema) - _KNOWN}"
    if "$ref" in schema:
        found = whole
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        return misfits(value, found, whole, at)
    if "anyOf" in schema:
        tried = [misfits(value, each, whole, at) for each in schema["anyOf"]]
        return [] if [] in tried else [f"{at}: none of {tried}"]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{at}: {value!r} is none of {schema['enum']}"]
    kind = schema.get("type")
    if kind is not None and (not isinstance(value, _TYPES[kind]) or (kind != "boolean" and isinstance(value, bool))):
        return [f"{at}: {value!r} is no {kind}"]
    if isinstance(value, list):
        return [
            each for n, item in enumerate(value) for each in misfits(item, schema.get("items", {}), whole, f"{at}[{n}]")
        ]
    if not isinstance(value, dict):
        return []
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    wrong = [f"{at}.{name}: absent" for name in schema.get("required", ()) if name not in value]
    for name, item in value.items():
        if name not in known and others is False:
            wrong.append(f"{at}.{name}: unknown")
        else:
            wrong += misfits(item, known.get(name, {} if isinstance(others, bool) else others), whole, f"{at}.{name}")
    return wrong
