"""The CustomResourceDefinition as files: for kubectl, and as a template of the chart. Pure."""

from disttrain.job import crd, document

_MADE = "# Made by `make generate` from the types in disttrain.job; changes here are overwritten.\n"


def plain() -> str:
    """Return the definition as YAML."""
    return _MADE + document.write(crd.definition())


def template() -> str:
    """Return the definition as a Helm template that is rendered to just that."""
    # Braces in a description would be an action of the template language.
    return plain().replace("{{", '{{ "{{" }}')
