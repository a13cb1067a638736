"""All line searches: what they have in common is `stage`, `trial` and `advanced(point)`."""

from typing import Annotated, TypeAlias

from pydantic import Field

from disttrain.sandblaster.line_search.armijo import ArmijoRules, ArmijoSearch
from disttrain.sandblaster.line_search.strong_wolfe import WolfeRules, WolfeSearch

SearchRules: TypeAlias = Annotated[WolfeRules | ArmijoRules, Field(discriminator="kind")]
Search: TypeAlias = Annotated[WolfeSearch | ArmijoSearch, Field(discriminator="kind")]
