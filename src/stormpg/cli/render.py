"""The command render."""

from pathlib import Path
from typing import Annotated

import typer

from stormpg.cli.base import Json, command, finish
from stormpg.cli.help import TRAINING
from stormpg.report.terminal import out
from stormpg.runs.run_folder import ITERATES


@command("render", TRAINING)
def render_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    file: Annotated[Path, typer.Option("--out", help="File to write, .gif or .mp4.")] = Path("run.gif"),
    seed: Annotated[int | None, typer.Option(help="Seed of the run; the first one by default.")] = None,
    which: Annotated[str, typer.Option(help=f"The iterate: {', '.join(ITERATES)}.")] = "last",
    sampled: Annotated[
        bool, typer.Option("--sampled", help="Sample actions instead of taking the mode of the policy.")
    ] = False,
    fps: Annotated[float | None, typer.Option(help="Frames per second; the environment's own by default.")] = None,
    as_json: Json = False,
) -> None:
    """Play an episode with the policy of a run, and write a film."""
    from stormpg.films.render import render

    made = render(run, file, which=which, deterministic=not sampled, policy_seed=seed, fps=fps)
    steps, total = made.lengths[0], made.returns[0]
    out.print(f"Written to {made.file}: {steps} steps, return {total:.2f}, {made.fps:g} frames per second", highlight=False)
    finish(as_json, {"file": str(made.file), "which": which, "steps": steps, "return": total, "fps": made.fps})
