"""Films of policies: the drawings are correct, and a film shows the episode that `evaluate` plays."""

import dataclasses
import itertools
import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image, ImageSequence

import stormpg
import stormpg.cli.render
from stormpg.envs import ENVIRONMENTS, make
from stormpg.errors import InputError
from stormpg.evaluate import Evaluation
from stormpg.films import formats
from stormpg.films.drawing import DRAWINGS, captioned, draw, round_number
from stormpg.films.render import RATES, render
from stormpg.runs import run_folder

pytestmark = pytest.mark.slow


def run_of(env: str, folder: Path, **settings) -> Path:
    """A tiny run."""
    stormpg.train(
        env, stormpg.make_algorithm("gpomdp", S0=4), trajectories=12, horizon=8, out=folder, **{"seeds": 1, **settings}
    )
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return run_of("cartpole-continuous", tmp_path_factory.mktemp("runs") / "run", seeds=[2, 5])


@pytest.fixture(scope="module")
def gym_run(tmp_path_factory) -> Path:
    pytest.importorskip("gymnasium")
    pytest.importorskip("pygame")
    return run_of("gym:CartPole-v1", tmp_path_factory.mktemp("runs") / "run")


def frames_of(file: Path) -> list[np.ndarray]:
    with Image.open(file) as film:
        return [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(film)]


def played(run: Path, seed: int, episodes: int = 1, deterministic: bool = True) -> Evaluation:
    """The result of `evaluate` for one of the policies of a run."""
    back = run_folder.Run(run)
    params = next(params for _, own, params in back.iterates("last") if own == seed)
    return stormpg.evaluate(back.env, back.policies[0], params, episodes, 0, deterministic, back.horizon, (0, seed))


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_environment_is_drawn_and_its_states_look_different(name):
    env = make(name)
    pictures = []
    for seed in (0, 1, 2, 4):
        state, seen = jax.device_get(env.reset(jax.random.key(seed)))
        if name == "rllab-mountain-car":  # resets differ only in the speed, which is not drawn
            state = state._replace(x=np.float32(0.1 * seed))
        pictures.append(np.asarray(draw(env, state, seen, 3.0)))
    for picture in pictures:
        assert picture.dtype == np.uint8
        assert picture.shape == (360, 640, 3)
        assert len(np.unique(picture.astype(np.int32) @ (1 << 16, 1 << 8, 1))) > 3  # colours
    assert len({picture.tobytes() for picture in pictures}) > 1


def test_what_can_be_drawn_has_a_frame_rate():
    assert set(RATES) == set(DRAWINGS) <= set(ENVIRONMENTS)
    assert max(RATES.values()) <= formats.FASTEST[".gif"]


@pytest.mark.parametrize(("name", "angle", "side"), [("cartpole", 0.15, 1), ("rllab-cartpole", 0.15, -1), ("pendulum", 1, -1)])
def test_a_positive_angle_leans_as_it_does_in_the_equations(name, angle, side):
    env = make(name)
    state, seen = jax.device_get(env.reset(jax.random.key(0)))
    leaning = state._replace(**dict.fromkeys(state._fields, 0.0) | {"angle": angle})
    picture = np.asarray(draw(env, leaning, seen, 1.0))
    vermillion = np.argwhere((picture == (0xD5, 0x5E, 0x00)).all(axis=-1))
    top, bottom = vermillion[:40, 1].mean(), vermillion[-40:, 1].mean()
    assert side * (top - bottom) > 10


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_states_without_bounds_are_drawn_too(name, number):
    env = make(name)
    state, seen = jax.device_get(env.reset(jax.random.key(0)))
    if not np.issubdtype(seen.dtype, np.floating):
        return
    broken = state._replace(**{field: np.full_like(value, number) for field, value in state._asdict().items()})
    assert draw(env, broken, np.full_like(seen, number), float(number)).size == (640, 360)


def test_axes_are_round_numbers():
    assert [round_number(x) for x in (0.0, 0.011, 1.0, 1.2, 2.2, 9.0, 12.0)] == pytest.approx([1, 0.015, 1, 1.5, 3, 10, 15])


def test_a_gif_has_the_episode_frame_by_frame(run, tmp_path):
    made = render(run, tmp_path / "films" / "run.gif")
    expected = played(run, 2)
    assert made.lengths == list(expected.lengths)
    np.testing.assert_allclose(made.returns, expected.returns, rtol=1e-5)
    frames = frames_of(made.file)
    assert len(frames) == made.lengths[0] + 1
    assert all((a != b).any() for a, b in itertools.pairwise(frames))
    with Image.open(made.file) as film:
        assert film.info["duration"] == 20
        film.seek(len(frames) - 1)
        assert film.info["duration"] == 1000
    assert [f.name for f in made.file.parent.iterdir()] == ["run.gif"]


def test_sampled_episodes_and_other_seeds_are_those_of_evaluate(run, tmp_path):
    made = render(run, tmp_path / "run.gif", episodes=3, deterministic=False, policy_seed=5)
    expected = played(run, 5, episodes=3, deterministic=False)
    np.testing.assert_allclose(made.returns, expected.returns, rtol=1e-5)
    assert len(frames_of(made.file)) == sum(expected.lengths) + 3


def test_colours_of_drawings_survive_in_a_gif(tmp_path):
    env = make("pendulum")
    states = [jax.device_get(env.reset(jax.random.key(seed)))[0] for seed in range(4)]
    drawn = [captioned(draw(env, state, None, 1.0), step, -1.5 * step) for step, state in enumerate(states)]
    formats.write_gif(tmp_path / "a", ((image, False) for image in drawn), 10.0)
    for frame, image in zip(frames_of(tmp_path / "a"), drawn, strict=True):
        wrong = np.abs(frame.astype(int) - np.asarray(image)).max(axis=-1)
        assert (wrong > 0).mean() < 0.001
        assert wrong.max() < 40


def test_photographs_become_gifs(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (2, 40, 60, 3), np.uint8)
    formats.write_gif(tmp_path / "a", ((Image.fromarray(frame), False) for frame in noise), 10.0)
    assert len(frames_of(tmp_path / "a")) == 2


@pytest.mark.parametrize("env", ["chain", "lqr"])
def test_environments_without_a_shape_become_films(env, tmp_path):
    made = render(run_of(env, tmp_path / "run"), tmp_path / "run.gif", fps=4)
    assert len(frames_of(made.file)) == made.lengths[0] + 1


def test_gymnasium_draws_its_own(gym_run, tmp_path):
    made = render(gym_run, tmp_path / "run.gif", episodes=2)
    expected = played(gym_run, 0, episodes=2)
    assert made.lengths == list(expected.lengths)
    assert made.returns == list(expected.returns)
    assert made.fps == 50
    frames = frames_of(made.file)
    assert len(frames) == sum(made.lengths) + 2
    assert frames[0].shape == (458, 600, 3)


def test_an_environment_that_cannot_draw_itself_is_refused(gym_run, tmp_path):
    env = run_folder.Run(gym_run).env
    lists = lambda render_mode: env.frames(render_mode="rgb_array_list")
    for frames, message in ((None, "cannot be drawn"), (lambda: None, "takes no render_mode"), (lists, "no images")):
        with pytest.raises(InputError, match=message):
            render(gym_run, tmp_path / "run.gif", env=dataclasses.replace(env, frames=frames))
    assert list(tmp_path.iterdir()) == []


def test_mp4(run, tmp_path):
    video = pytest.importorskip("imageio_ffmpeg")
    made = render(run, tmp_path / "run.mp4", fps=12.5)
    count, seconds = video.count_frames_and_secs(made.file)
    assert count == made.lengths[0] + 1
    assert seconds == pytest.approx(count / 12.5, abs=0.05)
    assert [f.name for f in tmp_path.iterdir()] == ["run.mp4"]


def test_mp4_of_an_odd_size(tmp_path):
    video = pytest.importorskip("imageio_ffmpeg")
    formats.write_mp4(tmp_path / "a.part", ((Image.new("RGB", (65, 33), "blue"), False) for _ in range(3)), 10.0)
    told = subprocess.run([video.get_ffmpeg_exe(), "-i", tmp_path / "a.part"], stderr=subprocess.PIPE, text=True, check=False)
    assert "64x32" in told.stderr


def test_mp4_without_its_package_says_what_to_install(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(InputError, match=r"pip install 'stormpg\[video\]'"):
        render(run, tmp_path / "run.mp4")
    assert list(tmp_path.iterdir()) == []


def test_what_ffmpeg_says_is_told(run, tmp_path, monkeypatch):
    video = pytest.importorskip("imageio_ffmpeg")
    monkeypatch.setattr(video, "get_ffmpeg_exe", lambda: "false")
    with pytest.raises(InputError, match="cannot be written"):
        render(run, tmp_path / "run.mp4")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"out": "run.avi"}, "expected .gif or .mp4"),
        ({"out": "run"}, "expected .gif or .mp4"),
        ({"fps": 0.0}, "fps is 0"),
        ({"fps": float("nan")}, "fps is nan"),
        ({"fps": 60.0}, "expected 0.1 to 50"),
        ({"policy_seed": 3}, "has no seed 3; it has 2, 5"),
        ({"which": "lst"}, "did you mean 'last'"),
        ({"episodes": 0}, "expected at least 1"),
        ({"out": "file/run.gif"}, "cannot be written"),
    ],
)
def test_mistakes_leave_no_film(arguments, message, run, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(InputError, match=message):
        render(run, **{**arguments, "out": tmp_path / arguments.get("out", "run.gif")})
    assert [f.name for f in tmp_path.iterdir()] == ["file"]


def command(monkeypatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["stormpg", "render", *arguments])
    with pytest.raises(SystemExit) as stop:
        stormpg.cli.main()
    return stop.value.code or 0


def test_the_command(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command(monkeypatch, str(run), "--seed", "5", "--which", "best", "--sampled", "--fps", "10", "--json") == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["file"] == "run.gif"
    assert told["fps"] == 10
    assert len(frames_of(tmp_path / "run.gif")) == told["steps"] + 1


@pytest.mark.parametrize("more", [["--out", "run.png"], ["--which", "first"], ["--seed", "9"], ["--fps", "fast"]])
def test_a_mistake_in_the_command_is_one_line(more, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command(monkeypatch, str(run), *more) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command(monkeypatch, "nowhere") == 2
    assert "holds no run" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
