"""The model catalog that makes Codex offer a shell and apply_patch to a model it does not know."""

import msgspec


def catalog(slug: str) -> bytes:
    """Return the file for `model_catalog_json`. It has only the fields that Codex 0.163 needs and those for tools.

    >>> msgspec.json.decode(catalog("scripted"))["models"][0]["slug"]
    'scripted'
    """
    model = {
        "slug": slug,
        "display_name": slug,
        "base_instructions": "Work in the folder you are given. Use the tools offered, then say what you did.",
        "shell_type": "unified_exec",
        "apply_patch_tool_type": "freeform",
        "experimental_supported_tools": [],
        "context_window": 200_000,
        "truncation_policy": {"mode": "bytes", "limit": 10_000},
        "supported_reasoning_levels": [],
        "support_verbosity": False,
        "supported_in_api": True,
        "visibility": "list",
        "priority": 1,
    }
    return msgspec.json.encode({"models": [model]})
