"""The README's example runs."""

import asyncio
import re
from pathlib import Path


def test_the_example_of_the_readme_runs():
    text = Path(__file__).parents[1].joinpath("README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {"__name__": "readme"}
    exec(compile(code, "README.md", "exec"), names)
    asyncio.run(names["main"]())
