"""The CustomResourceDefinition as files: for kubectl, and as a template of the chart. Pure."""

from disttrain.job import document
from disttrain_generators import crd

_MADE = "# Made by `make generate` from the types in disttrain.job; changes here are overwritten.\n"

# As comments of YAML, so that the template can be read as the definition, too.
_ENABLED = "# {{ if .Values.crds.enabled }}"
_KEPT = "# {{ if .Values.crds.keep }}"
_LABELS = '# {{ with .Values.commonLabels }}{{ dict "labels" . | toYaml | nindent 2 }}{{ end }}'
_END = "# {{ end }}"


def plain() -> str:
    """Return the definition as YAML."""
    return _MADE + document.write(crd.definition())


def template() -> str:
    """Return the definition as a Helm template that is rendered to just that, if values let it."""
    # Braces in a description would be an action of the template language.
    text = plain().replace("{{", '{{ "{{" }}')
    kept = "  annotations:\n    helm.sh/resource-policy: keep\n"
    text = text.replace(kept, f"  {_KEPT}\n{kept}  {_END}\n  {_LABELS}\n", 1)
    return f"{_ENABLED}\n{text}{_END}\n"
