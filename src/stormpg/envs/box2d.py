"""`box2d:rllab-mountain-car`: rllab's Mountain-Car on the Box2D engine itself. `rllab-mountain-car` is a model of it.

rllab uses one world for all episodes, and the engine keeps contacts of the previous episode. Here each episode has its own
world, which takes a tenth of a millisecond to build. A seed therefore always gives the same episode.
"""

import dataclasses
import math
from typing import Any

import gymnasium
import numpy as np
from Box2D import b2ChainShape, b2PolygonShape, b2World
from gymnasium.envs.registration import EnvSpec

from stormpg.envs import gym
from stormpg.envs import rllab_mountain_car as car
from stormpg.envs.base import OutsideEnvironment
from stormpg.errors import InputError, choose, nearest

# Created once: a world copies the shapes that it is given, but does not free shapes that it creates.
TRACK = b2ChainShape(vertices_chain=[(car.EDGE * i, math.sin((i / 100 - 0.5) * math.pi)) for i in range(-100, 101)])
CAR = b2PolygonShape(box=(car.HALF_WIDTH, car.HALF_HEIGHT))


class MountainCar(gymnasium.Env):
    """A box that slides in a valley. The action is the force on it. The time limit in `spec` is not applied here."""

    spec = EnvSpec("rllab-mountain-car", entry_point="stormpg.envs.box2d:MountainCar", max_episode_steps=1000)

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.build()

    def build(self) -> None:
        """Create a world with the car at its start, at rest."""
        self.world = b2World(gravity=(0, -car.GRAVITY), doSleep=False)
        self.car = self.world.CreateDynamicBody(position=(0, car.START_Y))
        self.car.CreateFixture(shape=CAR, density=5, friction=0.0005)
        self.world.CreateStaticBody(position=(0, 1)).CreateFixture(shape=TRACK)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode. `options={"speed": 0.5}` sets the initial speed, which is random by default."""
        super().reset(seed=seed)
        self.build()
        speed = (options or {}).get("speed", self.np_random.uniform(-1, 1))
        self.car.linearVelocity = (float(speed), 0)
        return self.observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        force = float(np.clip(np.ravel(action)[0], -1, 1))
        self.car.ApplyForce(self.car.GetWorldVector((force, 0)), self.car.GetWorldPoint((0, 0)), wake=True)
        self.world.Step(car.DT, 8, 3)
        x, y = self.car.position
        return self.observation(), -1 + y, x >= car.GOAL_X or abs(x) >= car.END_X, False, {}

    def observation(self) -> np.ndarray:
        """Return the position and the speed of the car."""
        return np.array((self.car.position[0], self.car.linearVelocity[0]), np.float32)


ENVIRONMENTS = {"rllab-mountain-car": MountainCar}


def make(name: str, asynchronous: bool = False, timeout: float | None = None, **settings: Any) -> OutsideEnvironment:
    """Return the environment for `make("box2d:...")`. `asynchronous` and `timeout` are as for `gym:` environments."""
    factory = ENVIRONMENTS[choose("Box2D environment", name, ENVIRONMENTS)]
    for setting in settings:
        raise InputError(f"box2d:{name} has no setting {setting!r}: {nearest(setting, ('asynchronous', 'timeout'))}.")
    given = {"asynchronous": asynchronous, "timeout": timeout}
    env = gym.from_factory(f"box2d:{name}", factory, asynchronous, timeout, {k: v for k, v in given.items() if v})
    return dataclasses.replace(env, frames=None)  # it cannot render frames
