"""`disttrain schema`: the JSON schema of manifests, for editors."""

import typer

from disttrain.job.fields import schema_text


def schema() -> None:
    """Print the JSON schema of manifests.

    Editors with the YAML language server complete and check a manifest whose first line is
    `# yaml-language-server: $schema=disttrain-job.schema.json`.

    Example: disttrain schema > disttrain-job.schema.json
    """
    typer.echo(schema_text(), nl=False)
