"""render(): episodes of a trained policy as a film, GIF or MP4.

The episodes are those that `evaluate` plays with the same seed, so the return in the corner is the one in its table.
"""

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator
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
from stormpg.records import Tree, traceable
from stormpg.runs.run_folder import Run
from stormpg.sampling.rollouts import draws_noise, noise_of

RATES = {  # frames a second: real time where the environment has a short time step, and Gymnasium's where it has not
    "cartpole": 1 / cartpole.DT,
    "cartpole-continuous": 1 / cartpole.DT,
    "rllab-cartpole": 1 / rllab_cartpole.DT,
    "rllab-mountain-car": 1 / rllab_mountain_car.DT,
    "mountain-car-continuous": 30.0,
    "pendulum": 1 / pendulum.DT,
    "acrobot": 15.0,
}
MOST_STEPS = 20_000  # of an episode that is filmed
USUAL_RATE = 5.0  # where nothing else is known


class Rendering(NamedTuple):
    """What was written: the file, its frames a second, and the return and the length of each episode in it."""

    file: Path
    fps: float
    returns: list[float]
    lengths: list[int]


class Frame(NamedTuple):
    """What is seen after a step, or after the reset, whose reward is 0."""

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
    """Play episodes with a policy of the run in a folder, and write them to a file that ends in .gif or .mp4.

    episodes, seed   how many, one after the other, and the seed of their randomness
    which            the iterate: last, uniform or best
    deterministic    take the mode of the policy, and not samples
    policy_seed      the seed of the run whose policy it is; its first one by default
    fps              frames a second; the environment's own by default
    env, policy      where they were of your own making, and cannot be made again from the folder
    """
    file = Path(out)
    write = writer(file)
    if episodes < 1:
        raise InputError(f"episodes is {episodes}; expected at least 1.")
    run = Run(folder, env, policy)
    if run.horizon > MOST_STEPS:
        raise InputError(f"episodes of the run in {folder} have up to {run.horizon} steps; a film has at most {MOST_STEPS}.")
    params, policy = parameters(run, which, policy_seed), run.policies[0]
    kind = Inside if run.env.in_jax else Outside
    with contextlib.closing(kind(run.env, policy, params, deterministic)) as stage:
        done = Rendering(file, frame_rate(fps, stage.rate, file), [], [])
        # As `evaluate` and the rollouts draw them.
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
    """ξ of one of the run's seeds."""
    wanted = run.seeds[0] if seed is None else seed
    found = [params for setting, own, params in run.iterates(which) if setting == 0 and own == wanted]
    if not found:
        raise InputError(f"the run in {run.folder} has no seed {seed}; it has {', '.join(map(str, run.seeds))}.")
    return found[0]


def frame_rate(asked: float | None, own: float, file: Path) -> float:
    """Frames a second: what was asked for, or the environment's own, as far as the format can show it."""
    fastest = FASTEST[file.suffix.lower()]
    if asked is not None and not 0.1 <= asked <= fastest:
        raise InputError(f"fps is {asked:g}; expected 0.1 to {fastest:g} frames a second for {file.suffix}.")
    return min(own, fastest) if asked is None else asked


def film(episodes: Iterable[Iterator[Frame]], done: Rendering) -> Iterator[tuple[Image.Image, bool]]:
    """All frames with their captions; `done` gets the return and the length of each episode."""
    for episode in episodes:
        total, step = 0.0, 0
        for step, (image, reward, over) in enumerate(episode):
            total += reward
            yield captioned(image, step, total), over
        done.returns.append(total)
        done.lengths.append(step)


class Inside:
    """Episodes of an environment in JAX, drawn here."""

    def __init__(self, env: Environment, policy: Any, params: Tree, deterministic: bool) -> None:
        self.env, self.rate = env, RATES.get(env.name, USUAL_RATE)
        self.move = functools.partial(_move, env, traceable(policy), params, deterministic)

    def episode(self, keys: Array, draws: Array) -> Iterator[Frame]:
        """Played to its end first: the axes of a plot have to hold all of it."""
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
    if deterministic:
        action = policy.mode(params, seen)
    else:
        action = policy.act(params, seen, draw) if draws_noise(policy) else policy.sample(params, draw, seen)
    return env.step(key, state, action)


class Outside:
    """Episodes of an environment outside JAX, which draws itself."""

    def __init__(self, env: OutsideEnvironment, policy: Any, params: Tree, deterministic: bool) -> None:
        if env.frames is None:
            raise InputError(f"{env.name} cannot be drawn: give a name, or a function that makes it with a render_mode.")
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # it greets on standard output otherwise
        self.env, acting = env, actor(policy, params)
        # The noise is JAX's, and an environment takes NumPy's arrays alone.
        self.act = lambda seen, noise: acting.mode(seen) if deterministic else np.asarray(acting.act(seen, noise))
        try:
            self.game = env.frames(render_mode="rgb_array")
        except TypeError as error:
            raise InputError(f"{env.name} cannot be drawn: what makes it takes no render_mode ({error}).") from None
        self.rate = float(self.game.metadata.get("render_fps") or USUAL_RATE)

    def episode(self, keys: Array, draws: Array) -> Iterator[Frame]:
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
        try:
            drawn = self.game.render()
        except Exception as error:  # what it lacks differs: a package, a display, a graphics driver
            raise InputError(f"{self.env.name} cannot draw itself: {error}.") from error
        if not isinstance(drawn, np.ndarray) or drawn.ndim != 3:
            raise InputError(f"{self.env.name} cannot be drawn: it has no pictures for render_mode 'rgb_array'.")
        return with_headroom(drawn)

    def close(self) -> None:
        self.game.close()
