"""render(): write episodes of a trained policy as a GIF or MP4 file.

The episodes are those that `evaluate` plays with the same seed, so the returns shown are those in its table.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from PIL import Image

from stormpg.envs import Environment, OutsideEnvironment, cartpole, pendulum, rllab_cartpole, rllab_mountain_car
from stormpg.errors import InputError
from stormpg.evaluate import episodes_key
from stormpg.files import write_file
from stormpg.films.drawing import captioned, draw, with_headroom
from stormpg.films.formats import FASTEST, writer
from stormpg.policies.acting import actor
from stormpg.pytrees import Tree, traceable
from stormpg.runs.run_folder import Run
from stormpg.sampling.rollouts import draws_noise, noise_of

RATES = {  # frames per second: real time if the environment has a time step, otherwise Gymnasium's rate
    "cartpole": 1 / cartpole.DT,
    "cartpole-continuous": 1 / cartpole.DT,
    "rllab-cartpole": 1 / rllab_cartpole.DT,
    "rllab-mountain-car": 1 / rllab_mountain_car.DT,
    "mountain-car-continuous": 30.0,
    "pendulum": 1 / pendulum.DT,
    "acrobot": 15.0,
}
MOST_STEPS = 20_000  # per episode
USUAL_RATE = 5.0  # for environments without a rate of their own


class Rendering(NamedTuple):
    """The file that was written, its frames per second, and the return and length of each episode in it."""

    file: Path
    fps: float
    returns: list[float]
    lengths: list[int]


class Frame(NamedTuple):
    """The image after a step, or after the reset, whose reward is 0."""

    image: Image.Image
    reward: float
    over: bool


def render(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    episodes: int = 1,
    seed: int = 0,
    which: str = "last",
    deterministic: bool = True,
    policy_seed: int | None = None,
    fps: float | None = None,
    env: Any = None,
    policy: Any = None,
) -> Rendering:
    """Play episodes with a policy of the run in a folder, and write them to a .gif or .mp4 file.

    episodes        number of episodes, shown one after the other
    seed            random seed of the episodes
    which           the iterate: last, uniform or best
    deterministic   take the mode of the policy instead of sampling actions
    policy_seed     the seed of the run whose policy is shown; the run's first seed by default
    fps             frames per second; the environment's own rate by default
    env, policy     your own environment or policy, if the run used one that cannot be rebuilt from the folder
    """
    file = Path(out)
    write = writer(file)
    if episodes < 1:
        raise InputError(f"episodes is {episodes}; expected at least 1.")
    run = Run(folder, env, policy)
    if run.horizon > MOST_STEPS:
        raise InputError(f"episodes of the run in {folder} have up to {run.horizon} steps; expected at most {MOST_STEPS}.")
    params, policy = parameters(run, which, policy_seed), run.policies[0]
    for device in ("VIDEO", "AUDIO"):  # pygame would look for a screen and an audio device, and neither is needed here
        os.environ.setdefault(f"SDL_{device}DRIVER", "dummy")
    kind = Inside if run.env.in_jax else Outside
    with contextlib.closing(kind(run.env, policy, params, deterministic)) as stage:
        done = Rendering(file, frame_rate(fps, stage.rate, file), [], [])
        # The same random numbers as in `evaluate` and the rollouts.
        own = run.seeds[0] if policy_seed is None else policy_seed
        keys = jax.random.split(episodes_key(seed, (0, own)), (episodes, 3))
        draws = noise_of(policy, keys[:, 1], run.horizon)
        frames = film((stage.episode(keys[i], draws[i]) for i in range(episodes)), done)

        def write_whole(part: Path) -> None:
            file.parent.mkdir(parents=True, exist_ok=True)
            write(part, frames, done.fps)

        write_file(file, write_whole)
    return done


def parameters(run: Run, which: str, seed: int | None) -> Tree:
    """ξ of one of the run's seeds. InputError if the run does not have this seed."""
    wanted = run.seeds[0] if seed is None else seed
    found = [params for setting, own, params in run.iterates(which) if setting == 0 and own == wanted]
    if not found:
        raise InputError(f"the run in {run.folder} has no seed {seed}; it has {', '.join(map(str, run.seeds))}.")
    return found[0]


def frame_rate(asked: float | None, own: float, file: Path) -> float:
    """Frames per second: the requested rate, or the environment's own, limited to what the format supports."""
    fastest = FASTEST[file.suffix.lower()]
    if asked is not None and not 0.1 <= asked <= fastest:
        raise InputError(f"fps is {asked:g}; expected 0.1 to {fastest:g} frames per second for {file.suffix}.")
    return min(own, fastest) if asked is None else asked


def film(episodes: Iterable[Iterator[Frame]], done: Rendering) -> Iterator[tuple[Image.Image, bool]]:
    """Yield all frames with captions. Appends the return and length of each episode to `done`."""
    for episode in episodes:
        total, step = 0.0, 0
        for step, (image, reward, over) in enumerate(episode):
            total += reward
            yield captioned(image, step, total), over
        done.returns.append(total)
        done.lengths.append(step)


class Inside:
    """Episodes of a JAX environment, drawn by `drawing`."""

    def __init__(self, env: Environment, policy: Any, params: Tree, deterministic: bool) -> None:
        self.env, self.rate = env, RATES.get(env.name, USUAL_RATE)
        self.move = functools.partial(_move, env, traceable(policy), params, deterministic)

    def episode(self, keys: Array, draws: Array) -> Iterator[Frame]:
        """Yield the frames of an episode. It is played to its end first, because the axes of a plot must cover all of it."""
        state, seen = self.env.reset(keys[0])
        played = [(state, seen, 0.0)]
        for time, draw_of_step in enumerate(draws):
            state, seen, reward, terminated = self.move(state, seen, draw_of_step, jax.random.fold_in(keys[2], time))
            played.append((state, seen, float(reward)))
            if terminated:
                break
        largest = max(np.abs(seen).max() for _, seen, _ in jax.device_get(played))
        for step, (state, seen, reward) in enumerate(jax.device_get(played), start=1):
            yield Frame(draw(self.env, state, seen, largest), reward, step == len(played))

    def close(self) -> None: ...


@functools.partial(jax.jit, static_argnums=(0, 3))
def _move(
    env: Environment, policy: Any, params: Tree, deterministic: bool, state: Any, seen: Array, draw: Any, key: Array
) -> Any:
    """Take a step of an episode."""
    if deterministic:
        action = policy.mode(params, seen)
    else:
        action = policy.act(params, seen, draw) if draws_noise(policy) else policy.sample(params, draw, seen)
    return env.step(key, state, action)


class Outside:
    """Episodes of an environment outside JAX, which draws its own frames."""

    def __init__(self, env: OutsideEnvironment, policy: Any, params: Tree, deterministic: bool) -> None:
        if env.frames is None:
            raise InputError(f"{env.name} cannot be drawn: pass its name, or a function that makes it with a render_mode.")
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # it prints a greeting otherwise
        self.env, acting = env, actor(policy, params)
        # The noise is a JAX array, but the environment takes only NumPy arrays.
        self.act: Callable[[np.ndarray, Array], np.ndarray] = lambda seen, noise: (
            acting.mode(seen) if deterministic else np.asarray(acting.act(seen, noise))
        )
        try:
            self.game = env.frames(render_mode="rgb_array")
        except TypeError as error:
            raise InputError(
                f"{env.name} cannot be drawn: the function that makes it takes no render_mode ({error})."
            ) from None
        self.rate = float(self.game.metadata.get("render_fps") or USUAL_RATE)

    def episode(self, keys: Array, draws: Array) -> Iterator[Frame]:
        """Yield the frames of an episode."""
        seed = int(np.asarray(jax.random.key_data(keys[0]))[-1] >> 1)
        seen, _ = self.game.reset(seed=seed)
        yield Frame(self.picture(), 0.0, False)
        for time in range(len(draws)):
            actions = self.act(self.env.flatten(seen)[None], draws[time : time + 1])
            seen, reward, terminated, truncated, _ = self.game.step(self.env.unflatten(actions)[0])
            over = bool(terminated or truncated or time + 1 == len(draws))
            yield Frame(self.picture(), float(reward), over)
            if over:
                break

    def picture(self) -> Image.Image:
        """The current frame. InputError if the environment cannot draw it."""
        try:
            drawn = self.game.render()
        except Exception as error:  # many causes: a missing package, display or graphics driver
            raise InputError(f"{self.env.name} cannot draw itself: {error}.") from error
        if not isinstance(drawn, np.ndarray) or drawn.ndim != 3:
            raise InputError(f"{self.env.name} cannot be drawn: it returns no images for render_mode 'rgb_array'.")
        return with_headroom(drawn)

    def close(self) -> None:
        self.game.close()
