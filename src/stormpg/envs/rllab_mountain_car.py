"""rllab's Mountain-Car as a pure function: a model of a box that slides in a valley in the Box2D engine.

The valley y = 1 − cos(πx/2) is a chain of straight edges 0.02 wide, and the box slides on its two lower corners. It is slowed
down less by friction (μ = 0.01) than by Box2D's numerical method: in each step the box moves in a straight line, and its
velocity is then projected inelastically onto the track. The same is done here, with Box2D's constants:

    forces → project the velocity → move → push out a fifth of the overlap
    → if a corner came too close on the way: return to that moment, push out, project, continue the move (at most twice)

Box2D iterates eight times over all edges that the box touches. Here each end of the box has at most four contacts, only the
strictest one is used, and both ends are solved together. Only the first step is a fit to measurements: rllab resets the box
to a place inside the track, and Box2D pushes it out. The mean number of steps to the goal agrees within about 10 % for most
policies; the error is largest for policies that barely reach the goal. The reward is −1 + y, and an episode ends at x ≥ 0.6
or |x| ≥ 2.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.envs.base import Box, Environment, only

DT, GRAVITY = 0.05, 10.0
HALF_WIDTH, HALF_HEIGHT, MASS = 0.2, 0.1, 0.4
INVERSE_MASS = 1 / MASS
INVERSE_INERTIA = 3 / (MASS * (HALF_WIDTH**2 + HALF_HEIGHT**2))
FRICTION = math.sqrt(0.0005 * 0.2)  # Box2D combines the friction of the car and of the track
START_Y, GOAL_X, END_X = 0.05, 0.6, 2.0

WAVE, EDGE = math.pi / 2, 0.02  # the track is 1 − cos(WAVE x), in edges of this width
HALF_EDGE_ANGLE = WAVE * EDGE / 2
CHORD_SLOPE = WAVE * math.sin(HALF_EDGE_ANGLE) / HALF_EDGE_ANGLE  # slope of an edge, divided by the sine at its middle
CHORD_DROP = math.cos(HALF_EDGE_ANGLE)  # (1 − height of the middle of an edge), divided by the cosine

# Box2D's constants: contacts act within the skin and aim at a gap of SKIN − SLOP; an impact is a gap of SLOP.
SLOP, SKIN = 0.005, 0.02
BAUMGARTE, IMPACT_BAUMGARTE, LARGEST_PUSH = 0.2, 0.75, 0.2
FACE_ANGLE = math.acos(1 - math.radians(2))  # below this angle, Box2D uses the normal of the box instead of the edge
IMPACTS = 2  # Box2D allows more, but a third one is rare


class State(NamedTuple):
    x: Array
    y: Array
    angle: Array
    vx: Array
    vy: Array
    omega: Array


class Contact(NamedTuple):
    on: Array  # whether it is within the skin
    nx: Array  # unit normal
    ny: Array
    normal_arm: Array  # lever arms of the normal and of the tangent about the centre
    tangent_arm: Array
    gap: Array


Triple = tuple[Array, Array, Array]  # (x, y, angle) or its velocity


def sin_cos(z: Array) -> tuple[Array, Array]:
    """Return sin(z) and cos(z) by Taylor polynomials (error 2e-6 below π/2, 4e-4 at π), several times faster than jnp.sin."""
    z = jnp.clip(z, -3.15, 3.15)
    q = z * z
    sin = z * (1 + q * (-1 / 6 + q * (1 / 120 + q * (-1 / 5040 + q * (1 / 362880 - q / 39916800)))))
    cos = 1 + q * (-1 / 2 + q * (1 / 24 + q * (-1 / 720 + q * (1 / 40320 + q * (-1 / 3628800 + q / 479001600)))))
    return sin, cos


def edge_at(x: Array) -> tuple[Array, Array, Array, Array]:
    """Return the middle and the unit normal of the track's edge at x."""
    middle = EDGE * (jnp.floor(x / EDGE) + 0.5)
    sin, cos = sin_cos(WAVE * middle)
    slope = CHORD_SLOPE * sin
    ny = jax.lax.rsqrt(1 + slope * slope)
    return middle, 1 - CHORD_DROP * cos, -slope * ny, ny


def corner(pose: Triple, side: int, turned: tuple[Array, Array]) -> tuple[Array, Array, Array, Array]:
    """Return a lower corner's distance from the smooth track, its offset from the centre, and x of its foot on the track.

    `side`: −1 for the left corner, 1 for the right one. `turned`: sine and cosine of the angle.
    """
    sin, cos = turned
    rx, ry = side * HALF_WIDTH * cos + HALF_HEIGHT * sin, side * HALF_WIDTH * sin - HALF_HEIGHT * cos
    track_sin, track_cos = sin_cos(WAVE * (pose[0] + rx))
    slope, height = WAVE * track_sin, pose[1] + ry - 1 + track_cos
    ny = jax.lax.rsqrt(1 + slope * slope)
    return height * ny, rx, ry, pose[0] + rx + slope * height * ny * ny


def contacts(pose: Triple, side: int) -> tuple[Contact, ...]:
    """Return the contacts of one end: the corner on its edge, its inner vertex, and the middle and last vertex in the skin."""
    sin, cos = turned = sin_cos(pose[2])
    _, rx, ry, foot = corner(pose, side, turned)
    middle, height, nx, ny = edge_at(foot)
    gap = nx * (pose[0] + rx - middle) + ny * (pose[1] + ry - height)
    # At distance u from the corner along the bottom, the gap is gap + tilt u − bend u²/2; it is in the skin up to `reach`.
    tilt = jnp.maximum(-side * (cos * nx + sin * ny), 0.0)
    bend = jnp.maximum(WAVE * WAVE * (1 - height) * ny**3, 0.0)
    depth = jnp.maximum(SKIN - gap, 0.0)
    reach = 2 * depth / (tilt + jnp.sqrt(jnp.maximum(tilt * tilt - 2 * bend * depth, 0.0)) + 1e-3)
    first = EDGE / 2 + side * (foot - middle)  # to the inner vertex of the corner's edge
    # The number of vertices in reach after the inner one; −1 if not even that one is in reach.
    more = jnp.floor((jnp.minimum(reach, HALF_WIDTH) * ny - first) / EDGE)
    on, inner = gap < SKIN, (gap < SKIN) & (more >= 0)

    def contact(on: Array, u: Array, nx: Array, ny: Array) -> Contact:
        ax, ay = rx - side * u * cos, ry - side * u * sin
        return Contact(on, nx, ny, ax * ny - ay * nx, -ax * nx - ay * ny, gap + u * (tilt - bend * u / 2))

    def vertex(k: Array) -> Contact:
        _, _, ex, ey = edge_at(foot - side * (first + (k + 0.5) * EDGE))
        u = (first + k * EDGE) / ny
        face = tilt - bend * u < FACE_ANGLE
        return contact(inner, u, jnp.where(face, -sin, ex), jnp.where(face, cos, ey))

    more = jnp.maximum(more, 0.0)
    here = contact(on, jnp.zeros_like(first), nx, ny), contact(inner, first / ny, nx, ny)
    return *here, vertex(jnp.floor(more / 2)), vertex(more)


def strictest(group: tuple[Contact, ...], velocity: Triple) -> Contact:
    """Return the contact that the box approaches fastest."""
    best, lowest = group[0], jnp.full_like(velocity[0], jnp.inf)
    for c in group:
        speed = jnp.where(c.on, velocity[0] * c.nx + velocity[1] * c.ny + velocity[2] * c.normal_arm, 9.0)
        best = Contact(*(jnp.where(speed < lowest, new, old) for new, old in zip(c, best, strict=True)))
        lowest = jnp.minimum(speed, lowest)
    return best


def kick(v: Triple, impulse: Array, dx: Array, dy: Array, arm: Array) -> Triple:
    """Return the velocity after an impulse along (dx, dy) with this lever arm. Also used to shift a pose."""
    return v[0] + INVERSE_MASS * impulse * dx, v[1] + INVERSE_MASS * impulse * dy, v[2] + INVERSE_INERTIA * impulse * arm


def project(v: Triple, guess: Triple, left: tuple[Contact, ...], right: tuple[Contact, ...]) -> Triple:
    """Return v, projected inelastically and with friction onto the strictest contacts.

    The strictest contacts are first those of the guess, then those of the result.
    """

    def solve(_: int, guess: Triple) -> Triple:
        a, b = strictest(left, guess), strictest(right, guess)
        kaa = INVERSE_MASS + INVERSE_INERTIA * a.normal_arm**2
        kbb = INVERSE_MASS + INVERSE_INERTIA * b.normal_arm**2
        kab = INVERSE_MASS * (a.nx * b.nx + a.ny * b.ny) + INVERSE_INERTIA * a.normal_arm * b.normal_arm
        inverse = 1 / jnp.maximum(kaa * kbb - kab * kab, 1e-3)

        def stop(v: Triple) -> tuple[Array, Array, Triple]:
            """Return the normal impulses p ≥ 0 (of both contacts, one or none) that stop the approach, and the new velocity."""
            va = jnp.where(a.on, a.nx * v[0] + a.ny * v[1] + a.normal_arm * v[2], 1e3)
            vb = jnp.where(b.on, b.nx * v[0] + b.ny * v[1] + b.normal_arm * v[2], 1e3)
            pa, pb = (kab * vb - kbb * va) * inverse, (kab * va - kaa * vb) * inverse
            both, alone = (pa >= 0) & (pb >= 0), jnp.maximum(-va / kaa, 0.0)
            enough = vb + kab * alone >= 0
            pa = jnp.where(both, pa, jnp.where(enough, alone, 0.0))
            pb = jnp.where(both, pb, jnp.where(enough, 0.0, jnp.maximum(-vb / kbb, 0.0)))
            return pa, pb, kick(kick(v, pa, a.nx, a.ny, a.normal_arm), pb, b.nx, b.ny, b.normal_arm)

        def rub(v: Triple, pressure: Array, c: Contact) -> Triple:
            """Return the velocity after Coulomb friction along the tangent (ny, −nx)."""
            sliding = c.ny * v[0] - c.nx * v[1] + c.tangent_arm * v[2]
            q = -sliding / (INVERSE_MASS + INVERSE_INERTIA * c.tangent_arm**2)
            return kick(v, jnp.clip(q, -FRICTION * pressure, FRICTION * pressure), c.ny, -c.nx, c.tangent_arm)

        pa, pb = stop(v)[:2]
        return stop(rub(rub(v, pa, a), pb, b))[2]

    projected: Triple = jax.lax.fori_loop(0, 2, solve, guess)
    return projected


def push_out(pose: Triple, origin: Triple, group: tuple[Contact, ...], gain: float) -> Triple:
    """Return the pose, pushed out by a share `gain` of the overlap, contact by contact. `origin`: the pose of the contacts."""
    for c in group:
        gap = c.gap + c.nx * (pose[0] - origin[0]) + c.ny * (pose[1] - origin[1]) + c.normal_arm * (pose[2] - origin[2])
        push = jnp.where(c.on, jnp.clip(gain * (SKIN - SLOP - gap), 0.0, LARGEST_PUSH), 0.0)
        pose = kick(pose, push / (INVERSE_MASS + INVERSE_INERTIA * c.normal_arm**2), c.nx, c.ny, c.normal_arm)
    return pose


def time_of_impact(begin: Triple, end: Triple) -> Array:
    """Return the share of the way at which a corner is SLOP away from the track, or 1 if none gets so close.

    The distance is approximated by a parabola.
    """
    way = [between(begin, end, share) for share in (0.0, 0.5, 1.0)]
    turned = [sin_cos(pose[2]) for pose in way]
    first = jnp.ones_like(begin[0])
    for side in (-1, 1):
        d0, d1, d2 = (corner(pose, side, t)[0] - SLOP for pose, t in zip(way, turned, strict=True))
        b = 4 * d1 - 3 * d0 - d2
        root = 2 * d0 / jnp.maximum(jnp.sqrt(jnp.maximum(b * b - 4 * (d2 - d0 - b) * d0, 0.0)) - b, 1e-6)
        first = jnp.minimum(first, jnp.where(d2 < 0, jnp.clip(root, 0.0, 1.0), 1.0))
    return first


def between(a: Triple, b: Triple, share: Array | float) -> Triple:
    """Return the pose at this share of the way from a to b."""
    return a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1]), a[2] + share * (b[2] - a[2])


def choose(condition: Array, yes: Triple, no: Triple) -> Triple:
    """Return `yes` where the condition holds, and `no` elsewhere."""
    return jnp.where(condition, yes[0], no[0]), jnp.where(condition, yes[1], no[1]), jnp.where(condition, yes[2], no[2])


def slide(state: State, force: Array) -> State:
    """Return the state after a step of a car that is on the track."""
    zero = jnp.zeros_like(force)
    begin, old = (state.x, state.y, state.angle), (state.vx, state.vy, state.omega)
    sin, cos = sin_cos(state.angle)
    v = kick((old[0], old[1] - DT * GRAVITY, old[2]), DT * force, cos, sin, zero)
    left, right = contacts(begin, -1), contacts(begin, 1)
    v = project(v, old, left, right)
    end = (begin[0] + DT * v[0], begin[1] + DT * v[1], begin[2] + DT * v[2])
    end = push_out(end, begin, right[::3] + left[::3], BAUMGARTE)

    def impact(_: int, carry: tuple[Triple, Triple, Triple, Array]) -> tuple[Triple, Triple, Triple, Array]:
        begin, end, v, rest = carry
        share = time_of_impact(begin, end)
        hit, at = share < 1, between(begin, end, share)
        left, right = contacts(at, -1), contacts(at, 1)
        out = at
        for _again in range(2):
            out = push_out(out, at, right[::3] + left[::3], IMPACT_BAUMGARTE)
        rest = rest * (1 - share)
        begin, v = choose(hit, out, begin), choose(hit, project(v, v, left, right), v)
        end = choose(hit, (begin[0] + rest * v[0], begin[1] + rest * v[1], begin[2] + rest * v[2]), end)
        return begin, end, v, jnp.where(hit, rest, DT)

    # A JAX loop, not a Python loop: the compiler stores values between iterations instead of computing them again for each use.
    _, end, v, _ = jax.lax.fori_loop(0, IMPACTS, impact, (begin, end, v, jnp.full_like(force, DT)))
    return State(*end, *v)


def thrown_out(vx: Array, force: Array) -> State:
    """Return the state after the first step, which starts inside the track: least squares over 300 resets in Box2D."""
    u = vx + DT * INVERSE_MASS * force
    y = jnp.full_like(u, 0.156)
    return State(0.036 * u - 0.010, y, 0.080 * u - 0.012, 0.82 * u, 0.10 * jnp.abs(u), 1.20 * u)


def observe(state: State) -> Array:
    return jnp.stack((state.x, state.vx))


def start(vx: Array) -> State:
    """Return the state after a reset, with this speed."""
    zero = jnp.zeros_like(vx)
    return State(zero, zero + START_Y, zero, vx, zero, zero)


def reset(key: Array) -> tuple[State, Array]:
    state = start(jax.random.uniform(key, minval=-1.0, maxval=1.0))
    return state, observe(state)


def step(key: Array, state: State, action: Array) -> tuple[State, Array, Array, Array]:
    force = jnp.clip(only(action), -1.0, 1.0).astype(state.x.dtype)
    fresh, off = state.y <= START_Y, jnp.abs(state.x) >= END_X  # on the track, the centre is always higher
    options = zip(state, thrown_out(state.vx, force), slide(state, force), strict=True)
    state = State(*(jnp.where(off, old, jnp.where(fresh, first, new)) for old, first, new in options))
    terminated = (state.x >= GOAL_X) | (jnp.abs(state.x) >= END_X)
    return state, observe(state), state.y - 1, terminated


def rllab_mountain_car() -> Environment:
    return Environment("rllab-mountain-car", reset, step, Box((2,)), Box((1,), -1.0, 1.0), horizon=1000)
