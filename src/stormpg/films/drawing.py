"""Images of the built-in environments, drawn from their states.

A drawing is a function that takes a state and returns a `Canvas`. A canvas uses the environment's own coordinates. The
colours are those of Okabe and Ito, which are safe for colour-blind viewers: blue is what is pushed, vermillion is what
swings, green is the goal.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from stormpg.envs import acrobot, cartpole, mountain_car, pendulum, rllab_cartpole, rllab_mountain_car
from stormpg.envs.base import Discrete, Environment

WIDTH, HEIGHT, HEADROOM = 640, 360, 58
SMOOTH = 4  # images are drawn this many times larger and then reduced, to smooth the edges
FAR = 4 * SMOOTH * WIDTH  # limit on pixel coordinates
PAPER, GROUND, FAINT, GREY, INK = "#FFFFFF", "#E8EBEF", "#F1F3F6", "#8A929C", "#2B3138"
BLUE, VERMILLION, GREEN, SKY = "#0072B2", "#D55E00", "#009E73", "#56B4E9"

Point = tuple[float, float]
font = functools.cache(ImageFont.load_default)


class Canvas:
    """An image of the world between `left` and `right` and above `bottom`. Stroke widths are in pixels."""

    def __init__(self, left: float, right: float, bottom: float) -> None:
        self.image = Image.new("RGB", (WIDTH * SMOOTH, HEIGHT * SMOOTH), PAPER)
        self.pen = ImageDraw.Draw(self.image)
        self.left, self.right, self.bottom = left, right, bottom
        self.scale = WIDTH * SMOOTH / (right - left)

    def pixel(self, point: Point) -> Point:
        """Return the position of a point in the enlarged image. Points that are NaN or far away are placed out of view."""
        x, y = (point[0] - self.left) * self.scale, HEIGHT * SMOOTH - (point[1] - self.bottom) * self.scale
        x, y = np.clip(np.nan_to_num([x, y], nan=FAR), -FAR, FAR)
        return float(x), float(y)

    def line(self, points: Iterable[Point], width: float, colour: str) -> None:
        """Draw a line with round ends and corners."""
        path, half = [self.pixel(p) for p in points], width * SMOOTH / 2
        for (x, y), (u, v) in itertools.pairwise(path):  # Pillow's wide lines have ragged edges
            share = half / (math.hypot(u - x, v - y) or 1.0)
            dx, dy = (y - v) * share, (u - x) * share
            self.pen.polygon([(x + dx, y + dy), (u + dx, v + dy), (u - dx, v - dy), (x - dx, y - dy)], colour)
        for point in path:
            self.pen.circle(point, half - 0.5, colour)

    def polygon(self, points: Sequence[Point], colour: str, rounding: float = 0.0) -> None:
        """Draw a filled polygon. An outline of `rounding` pixels makes its corners round."""
        self.pen.polygon([self.pixel(p) for p in points], colour)
        if rounding:
            self.line([*points, points[0]], rounding, colour)

    def disc(self, centre: Point, radius: float, colour: str) -> None:
        self.pen.circle(self.pixel(centre), radius * self.scale - 0.5, colour)

    def text(self, point: Point, words: str, size: int = 15, colour: str = GREY, anchor: str = "mm") -> None:
        self.pen.text(self.pixel(point), words, colour, font(size * SMOOTH), anchor)

    def picture(self) -> Image.Image:
        return self.image.reduce(SMOOTH)


def polar(centre: Point, length: float, angle: float) -> Point:
    """The point at this distance and angle from the centre, counter-clockwise from straight up."""
    return centre[0] - length * math.sin(angle), centre[1] + length * math.cos(angle)


def turned(centre: Point, angle: float, *points: Point) -> list[Point]:
    """Convert points from the coordinates of a body at this centre and angle to those of the world."""
    sin, cos = math.sin(angle), math.cos(angle)
    return [(centre[0] + cos * x - sin * y, centre[1] + sin * x + cos * y) for x, y in points]


def pole_on_cart(x: float, foot: Point, angle: float, length: float, most: float, end: float) -> Canvas:
    """Draw a cart at x on a rail from −`end` to `end`. The wedge shows the allowed angles, up to ±`most`."""
    canvas, rail, half = Canvas(-2.8, 2.8, -0.85), -0.34, 0.3
    canvas.line([(-end - half, rail), (end + half, rail)], 4, GREY)
    for stop in (-end, 0.0, end):
        canvas.line([(stop, rail), (stop, rail - 0.09)], 3, GREY)
        canvas.text((stop, rail - 0.22), f"{stop:g}")
    canvas.polygon([foot, *(polar(foot, 1.12 * length, most * share / 8) for share in range(-8, 9))], GROUND)
    canvas.polygon([(x - half, -0.2), (x + half, -0.2), (x + half, 0.0), (x - half, 0.0)], BLUE, 10)
    for side in (-0.19, 0.19):
        canvas.disc((x + side, rail + 0.1), 0.085, INK)
    canvas.line([foot, polar(foot, length, angle)], 11, VERMILLION)
    canvas.disc(foot, 0.028, PAPER)
    return canvas


def draw_cartpole(state: Any) -> Canvas:
    limits = 2 * cartpole.HALF_LENGTH, cartpole.ANGLE_LIMIT, cartpole.X_LIMIT
    return pole_on_cart(state.x, (state.x, 0.0), -state.angle, *limits)


def draw_rllab_cartpole(state: Any) -> Canvas:
    """The pole is drawn at its own coordinates, which are slightly off the cart after a reset."""
    foot = polar((state.pole_x, state.pole_y), -rllab_cartpole.HALF_LENGTH, state.angle)
    limits = rllab_cartpole.LENGTH, rllab_cartpole.ANGLE_LIMIT, rllab_cartpole.X_LIMIT
    return pole_on_cart(state.x, foot, state.angle, *limits)


def car_on_hill(canvas: Canvas, height: Callable[[float], float], goal: float, car: Point, angle: float, half: Point) -> Canvas:
    """Draw a hill, a flag at the goal, and a car with these half lengths."""
    track = [(float(x), height(float(x))) for x in np.linspace(canvas.left, canvas.right, 161)]
    canvas.polygon([(canvas.left, canvas.bottom), *track, (canvas.right, canvas.bottom)], GROUND)
    canvas.line(track, 4, GREY)
    size, top = 2.4 * half[0], 2.4 * half[0] + height(goal)
    canvas.line([(goal, top - size), (goal, top)], 3, INK)
    canvas.polygon([(goal, top), (goal, top - 0.4 * size), (goal - 0.55 * size, top - 0.2 * size)], GREEN, 3)
    width, tall, wheel = *half, 0.5 * half[1]
    canvas.polygon(turned(car, angle, (-0.65 * width, 0), (0.6 * width, 0), (0.3 * width, tall), (-0.4 * width, tall)), SKY, 2)
    low, high = -0.5 * tall, 0.25 * tall
    canvas.polygon(turned(car, angle, (-width, low), (width, low), (width, high), (-width, high)), BLUE, 4)
    for axle in turned(car, angle, (-width + 1.3 * wheel, wheel - tall), (width - 1.3 * wheel, wheel - tall)):
        canvas.disc(axle, wheel, INK)
        canvas.disc(axle, 0.4 * wheel, PAPER)
    return canvas


def draw_rllab_mountain_car(state: Any) -> Canvas:
    valley: Callable[[float], float] = lambda x: 1 - math.cos(rllab_mountain_car.WAVE * x)
    half = rllab_mountain_car.HALF_WIDTH, rllab_mountain_car.HALF_HEIGHT
    return car_on_hill(Canvas(-2.3, 2.3, -0.12), valley, rllab_mountain_car.GOAL_X, (state.x, state.y), state.angle, half)


def draw_mountain_car(state: Any) -> Canvas:
    """Gymnasium's hill sin 3x, scaled down so that all of it is visible."""
    half, rise = (0.085, 0.045), 0.38
    hill: Callable[[float], float] = lambda x: rise * math.sin(3 * x)
    angle = math.atan(3 * rise * math.cos(3 * state.x))
    car = turned((state.x, hill(state.x)), angle, (0.0, half[1]))[0]
    canvas = Canvas(mountain_car.LEFT_WALL - 0.1, mountain_car.RIGHT_WALL + 0.1, -1.25 * rise)
    return car_on_hill(canvas, hill, mountain_car.GOAL, car, angle, half)


def linkage(canvas: Canvas, joints: Sequence[Point], width: float) -> Canvas:
    """Draw rods between consecutive joints. The first joint is fixed."""
    for place, rod in enumerate(itertools.pairwise(joints)):
        canvas.line(rod, width, (VERMILLION, BLUE)[place % 2])
    for joint in joints[:-1]:
        canvas.line([joint], 0.75 * width, INK)
        canvas.line([joint], 0.3 * width, PAPER)
    return canvas


def ring(canvas: Canvas, radius: float) -> None:
    """Draw the disc that the rods can reach."""
    canvas.disc((0.0, 0.0), radius, GROUND)
    canvas.disc((0.0, 0.0), radius - 2 / canvas.scale * SMOOTH, FAINT)


def draw_pendulum(state: Any) -> Canvas:
    """The goal is the dot at the top."""
    canvas, length = Canvas(-2.2, 2.2, -1.2375), pendulum.LENGTH
    ring(canvas, length)
    canvas.line([(0.0, length)], 18, GREEN)
    return linkage(canvas, [(0.0, 0.0), polar((0.0, 0.0), length, state.angle)], 20)


def draw_acrobot(state: Any) -> Canvas:
    """The goal is the line that the tip must rise above."""
    canvas, length = Canvas(-4.1, 4.1, -2.306), acrobot.LENGTH
    ring(canvas, 2 * length)
    canvas.line([(-2.6 * length, length), (2.6 * length, length)], 3, GREEN)
    elbow = polar((0.0, 0.0), -length, state.angle1)
    tip = polar(elbow, -length, state.angle1 + state.angle2)
    return linkage(canvas, [(0.0, 0.0), elbow, tip], 13)


def bars(values: np.ndarray, largest: float) -> Canvas:
    """Draw numbers as bars, for environments without a drawing. The axis covers ±`largest`."""
    canvas, limit = Canvas(-8.0, 8.0, -4.2), round_number(largest)
    left, right, height = -6.6, 7.2, 2.9
    for level in (-1.0, 0.0, 1.0):
        canvas.line([(left, height * level), (right, height * level)], 2, GREY if level == 0 else GROUND)
        canvas.text((left - 0.2, height * level), f"{level * limit:g}", anchor="rm")
    pitch = (right - left) / len(values)
    for place, value in enumerate(np.clip(values / limit, -1.0, 1.0)):
        middle, half, top = left + (place + 0.5) * pitch, 0.35 * min(pitch, 2.5), height * value
        corners = [(middle - half, 0.0), (middle + half, 0.0), (middle + half, top), (middle - half, top)]
        canvas.polygon(corners, BLUE if value >= 0 else VERMILLION)
        if pitch > 0.5:
            canvas.text((middle, -height - 0.5), str(place))
    return canvas


def round_number(least: float) -> float:
    """The smallest round number that is at least `least`."""
    ten = 10.0 ** math.floor(math.log10(least)) if 0 < least < math.inf else 1.0
    return next((ten * digit for digit in (1, 1.5, 2, 3, 5, 7) if ten * digit >= least), 10 * ten)


def places(here: int, states: int) -> Canvas:
    """Draw a finite number of states in a row, with the current one highlighted."""
    canvas, pitch = Canvas(-8.0, 8.0, -4.5), min(14.4 / states, 3.0)
    row = [((place - (states - 1) / 2) * pitch, 0.0) for place in range(states)]
    canvas.line([row[0], row[-1]], 4, GREY)
    for place, point in enumerate(row):
        canvas.disc(point, 0.34 * pitch, GREY)
        canvas.disc(point, 0.31 * pitch, VERMILLION if place == here else FAINT)
        if pitch > 0.8:
            canvas.text(point, str(place), 20, PAPER if place == here else INK)
    return canvas


DRAWINGS: dict[str, Callable[[Any], Canvas]] = {  # the state's fields are Python floats
    "cartpole": draw_cartpole,
    "cartpole-continuous": draw_cartpole,
    "rllab-cartpole": draw_rllab_cartpole,
    "rllab-mountain-car": draw_rllab_mountain_car,
    "mountain-car-continuous": draw_mountain_car,
    "pendulum": draw_pendulum,
    "acrobot": draw_acrobot,
}


def draw(env: Environment, state: Any, observation: Any, largest: float) -> Image.Image:
    """Return an image of an environment in this state. `largest` is the largest absolute observation of the episode."""
    if env.name in DRAWINGS:
        numbers = (x if math.isfinite(x) else math.nan for x in map(float, state))
        return DRAWINGS[env.name](type(state)(*numbers)).picture()
    if isinstance(env.observation_space, Discrete):
        return places(int(observation), env.observation_space.n).picture()
    return bars(np.ravel(observation), largest).picture()


def captioned(image: Image.Image, step: int, total: float) -> Image.Image:
    """Write the step and the return so far into the corner of the image."""
    pen = ImageDraw.Draw(image)
    for line, (name, value) in enumerate((("step", f"{step}"), ("return", f"{total:.1f}"))):
        pen.text((14, 10 + 21 * line), name, GREY, font(16))
        pen.text((134, 10 + 21 * line), value, INK, font(16), "ra")
    return image


def with_headroom(frame: np.ndarray) -> Image.Image:
    """Add space for the caption above a frame that another library has drawn."""
    drawn = Image.fromarray(frame)
    image = Image.new("RGB", (drawn.width, drawn.height + HEADROOM), PAPER)
    image.paste(drawn, (0, HEADROOM))
    return image
