"""The little of JSON Schema that Codex's own schema uses: the least value of a type, and whether a value fits one."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Node = dict[str, Any] | bool


@dataclass(frozen=True, slots=True)
class Schema:
    """One schema file."""

    root: dict[str, Any]

    @classmethod
    def load(cls, file: Path) -> "Schema":
        return cls(json.loads(file.read_text()))

    def node(self, node: Node) -> Node:
        """The node itself, where this one only names it."""
        while isinstance(node, dict) and "$ref" in node:
            node = self.root["definitions"][node["$ref"].removeprefix("#/definitions/")]
        return node

    def messages(self) -> dict[str, Node]:
        """Method → its parameters, of a file that lists messages."""
        return {
            one["properties"]["method"]["enum"][0]: one["properties"].get("params", True) for one in self.root["oneOf"]
        }

    def variants(self, node: Node) -> Iterator[Any]:
        """The least value of every alternative."""
        node = self.node(node)
        for one in node.get("oneOf", [node]) if isinstance(node, dict) else [node]:
            yield self.least({**node, **one, "oneOf": []} if isinstance(node, dict) and isinstance(one, dict) else one)

    def least(self, node: Node) -> Any:
        """A value with everything required and nothing else."""
        node = self.node(node)
        if isinstance(node, bool):
            return None
        for choice in ("oneOf", "anyOf", "allOf"):
            if node.get(choice):
                merged = {key: value for key, value in node.items() if key not in {"oneOf", "anyOf"}}
                first = self.node(node[choice][0])
                least = self.least(first)
                return {**self.least({**merged, "allOf": []}), **least} if "properties" in node else least
        if "enum" in node:
            return node["enum"][0]
        type_ = node.get("type", "null")
        match type_[0] if isinstance(type_, list) else type_:
            case "object":
                return {name: self.least(node["properties"][name]) for name in node.get("required", ())}
            case "array":
                return []
            case "string":
                return "x"
            case "integer" | "number":
                return 1
            case "boolean":
                return True
            case _:
                return None

    def fits(self, value: Any, node: Node) -> bool:
        """Whether the value is of that type and, being an object, has no field that the type does not know."""
        node = self.node(node)
        if isinstance(node, bool):
            return node
        for choice in ("oneOf", "anyOf"):
            if node.get(choice):
                return any(self.fits(value, one) for one in node[choice])
        if node.get("allOf"):
            return all(self.fits(value, one) for one in node["allOf"])
        if "enum" in node:
            return value in node["enum"]
        types = node.get("type", [])
        return (
            any(self._is(value, type_, node) for type_ in ([types] if isinstance(types, str) else types)) or not types
        )

    def _is(self, value: Any, type_: str, node: dict[str, Any]) -> bool:
        match type_:
            case "object":
                more = node.get("additionalProperties", False)
                known = node.get("properties", {})
                return (
                    isinstance(value, dict)
                    and set(node.get("required", ())) <= set(value)
                    and all(self.fits(part, known.get(name, more)) for name, part in value.items())
                )
            case "array":
                return isinstance(value, list) and all(self.fits(part, node.get("items", True)) for part in value)
            case "string":
                return isinstance(value, str)
            case "integer":
                return isinstance(value, int) and not isinstance(value, bool)
            case "number":
                return isinstance(value, int | float) and not isinstance(value, bool)
            case "boolean":
                return isinstance(value, bool)
            case _:
                return value is None
