// One clock for video and scene: during playback the scene follows the video; the slider moves both.
import { load, frameAt } from '/data.js';
import { Scene } from '/scene.js';
import { showPanel } from '/panel.js';
import { addIdentities } from '/identities.js';
import { uncertaintyColour } from '/colours.js';
import { Color } from 'three';

const $ = id => document.getElementById(id);
const video = $('video'), slider = $('slider');
let meta, scene, frame = 0, playing = false, startedAt = 0, startedFrom = 0;
let marks = [null, null]; // first and last frame of the marked part

const lastTime = () => meta.time_s.at(-1) + frameLength(meta.time_s.length - 1);
const frameLength = i => i + 1 < meta.time_s.length ? meta.time_s[i + 1] - meta.time_s[i]
  : i > 0 ? meta.time_s[i] - meta.time_s[i - 1] : 0.04;

function show(next) {
  frame = next;
  slider.value = next;
  scene.show(next);
  $('time').textContent = `${meta.time_s[next].toFixed(2)} s · frame ${meta.frames[next]}`;
  const shot = meta.shots[scene.shot];
  $('frame-note').textContent = shot.about;
  $('frame-note').classList.toggle('unknown', !shot.upright);
  if (scene.selected) showPanel($('panel'), meta, scene.selected, next, () => select(null));
  document.body.dataset.frame = next; // for tests and scripts
}

// Seeks to the middle of the frame's time: a time rounded down would show the frame before.
function seek(next) {
  next = Math.min(meta.time_s.length - 1, Math.max(0, next));
  show(next);
  if (meta.has_video) video.currentTime = meta.time_s[next] + 0.5 * frameLength(next);
  startedAt = performance.now();
  startedFrom = meta.time_s[next];
}

const firstMarked = () => marks[0] ?? 0;
const lastMarked = () => marks[1] ?? meta.time_s.length - 1;

// Seconds of the video between a frame and the one before it.
const justBefore = i => Math.max(0, meta.start_s + meta.time_s[i] - 0.25 * frameLength(i));

// Marks the current frame as first (0) or last (1) of a part, or removes that mark. A mark beyond the other removes it.
function mark(side) {
  marks[side] = marks[side] === frame ? null : frame;
  if (marks[0] !== null && marks[1] !== null && marks[0] > marks[1]) marks[1 - side] = null;
  const none = marks[0] === null && marks[1] === null, count = meta.time_s.length;
  $('part').hidden = $('trim').hidden = none;
  $('part').style.marginLeft = `calc(8px + ${firstMarked() / count} * (100% - 16px))`;
  $('part').style.width = `calc(${(lastMarked() + 1 - firstMarked()) / count} * (100% - 16px))`;
  // Between frames, so that rounding leaves none out.
  const begins = justBefore(firstMarked());
  const ends = meta.start_s + meta.time_s[lastMarked()] + 0.5 * frameLength(lastMarked());
  $('command').textContent = meta.trim
    + (marks[0] === null ? '' : ` --start ${begins.toFixed(3)}`) + (marks[1] === null ? '' : ` --end ${ends.toFixed(3)}`);
}

function setPlaying(shouldPlay) {
  playing = shouldPlay;
  $('play').textContent = playing ? '❚❚' : '▶';
  $('play').setAttribute('aria-label', playing ? 'Pause' : 'Play');
  if (playing && (frame >= lastMarked() || frame < firstMarked())) seek(firstMarked());
  startedAt = performance.now();
  startedFrom = meta.time_s[frame];
  if (!meta.has_video) return;
  if (playing) return playVideo();
  video.pause();
  show(frameAt(meta.time_s, video.currentTime)); // the video may have advanced since the last tick
}

function playVideo() {
  video.play().catch(() => { if (video.paused) setPlaying(false); });
}

function follow() {
  if (!playing) return;
  const speed = Number($('speed').value);
  let time = meta.has_video ? video.currentTime : startedFrom + speed * (performance.now() - startedAt) / 1000;
  if (!meta.has_video && time >= lastTime()) time = lastTime();
  let next = frameAt(meta.time_s, time);
  if (next > lastMarked() || (!meta.has_video && time === lastTime())) { next = firstMarked(); seek(next); }
  if (next !== frame) show(next);
}

function select(picked) {
  scene.selected = picked;
  if (!picked) $('panel').hidden = true;
  $('hint').hidden = Boolean(picked);
  show(frame);
}

function setColour(mode) {
  scene.mode = mode;
  const scale = meta.scale_mm[mode], legend = $('legend');
  legend.hidden = mode === 'person' || (mode !== 'observed' && !scale);
  legend.classList.toggle('observed', mode === 'observed');
  $('legend-low').textContent = mode === 'observed' ? 'not observed' : '0';
  $('legend-high').textContent = mode === 'observed' ? 'observed' : `${scale}+ mm`;
  $('legend-title').textContent = mode === 'observed' ? '' : 'standard deviation';
  show(frame);
}

// Two bars for each person: one in the person's colour, and one that is blue where frames are usable and red where not.
function drawSpans() {
  const add = (title, spans, background) => {
    const line = document.createElement('div');
    line.title = title;
    for (const span of spans) {
      const bar = document.createElement('i');
      bar.style.left = `${100 * span.first / meta.frames.length}%`;
      bar.style.width = `${100 * span.count / meta.frames.length}%`;
      bar.style.background = background(span);
      line.append(bar);
    }
    $('spans').append(line);
  };
  for (const person of meta.people) {
    add(`person ${person.identity}`, person.spans, () => person.colour);
    const { numbers } = person.arrays.worst_mm, colour = new Color();
    if (!numbers.some(Number.isFinite)) continue;
    add(`person ${person.identity}: how far the worst joint may be off, blue 0 to red ${meta.worst_scale_mm} mm`, person.spans, ({ row, count }) => {
      const step = Math.max(1, Math.ceil(count / 200)), stops = [];
      for (let i = 0; i < count; i += step) stops.push('#' + uncertaintyColour(numbers[row + i], meta.worst_scale_mm, colour).getHexString());
      return `linear-gradient(90deg, ${stops.concat(stops.at(-1)).join(',')})`;
    });
  }
}

function addListeners() {
  slider.addEventListener('input', () => seek(Number(slider.value)));
  $('play').addEventListener('click', () => setPlaying(!playing));
  $('back').addEventListener('click', () => { setPlaying(false); seek(frame - 1); });
  $('forward').addEventListener('click', () => { setPlaying(false); seek(frame + 1); });
  $('mark-first').addEventListener('click', () => mark(0));
  $('mark-last').addEventListener('click', () => mark(1));
  $('person').addEventListener('change', event => isolate(event.target.value));
  $('copy').addEventListener('click', () => {
    navigator.clipboard?.writeText($('command').textContent).then(() => { $('copy').textContent = 'copied'; }, () => {});
    getSelection().selectAllChildren($('command'));
  });
  $('speed').addEventListener('change', () => {
    video.playbackRate = Number($('speed').value);
    startedAt = performance.now();
    startedFrom = meta.time_s[frame];
  });
  video.addEventListener('ended', () => { if (playing) { seek(firstMarked()); playVideo(); } });
  video.addEventListener('click', () => setPlaying(!playing));
  video.addEventListener('error', hideVideo);
  $('colour').addEventListener('change', event => setColour(event.target.value));
  $('joints').addEventListener('change', event => { scene.jointsShown = event.target.checked; show(frame); });
  $('meshes').addEventListener('change', event => { scene.meshesShown = event.target.checked; show(frame); });
  $('footprints').addEventListener('change', event => { scene.footprintsShown = event.target.checked; show(frame); });
  const views = {
    'camera-view': () => scene.viewFromCamera(), 'world-view': () => scene.viewWorld(),
    'hand-view': () => scene.viewHands(), 'side-view': () => scene.viewFrom(1, 0.15, 0), 'top-view': () => scene.viewFrom(0, 1, 0.001),
  };
  for (const [name, look] of Object.entries(views)) $(name).addEventListener('click', () => {
    look();
    for (const other of Object.keys(views)) $(other).setAttribute('aria-pressed', other === name);
    show(frame);
  });
  scene.controls.addEventListener('start', () => {
    for (const name of Object.keys(views)) $(name).setAttribute('aria-pressed', false);
    show(frame);
  });
  let down = null;
  const canvas = $('canvas');
  canvas.addEventListener('pointerdown', event => { down = [event.clientX, event.clientY]; });
  canvas.addEventListener('pointerup', event => {
    if (!down || Math.hypot(event.clientX - down[0], event.clientY - down[1]) > 4) return; // that was a drag
    const box = canvas.getBoundingClientRect();
    select(scene.pick(event.clientX - box.left, event.clientY - box.top));
  });
  addKeys();
  new ResizeObserver(() => scene.resize()).observe($('scene-panel'));
}

// A control that was used with the mouse gives the focus back, so that Space and the arrow keys move the video again.
// A control that was reached with the Tab key keeps it: there Space presses the button.
function addKeys() {
  addEventListener('click', event => {
    if (event.detail > 0) event.target.closest('button, a, input[type=checkbox]')?.blur();
  });
  addEventListener('change', event => { if (event.target.matches('select')) event.target.blur(); });
  addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === ' ') {
      if (event.target.matches('select, button, a, input[type=checkbox]')) return;
      setPlaying(!playing);
    } else if (event.key === 'ArrowRight' && event.target !== slider) { setPlaying(false); seek(frame + 1); }
    else if (event.key === 'ArrowLeft' && event.target !== slider) { setPlaying(false); seek(frame - 1); }
    else if (event.key.toLowerCase() === 'i' && meta.trim) mark(0);
    else if (event.key.toLowerCase() === 'o' && meta.trim) mark(1);
    else if (event.key === 'Escape') select(null);
    else return;
    event.preventDefault();
  });
}

// Shows one person alone, by identity, or everyone.
function isolate(identity) {
  scene.only = identity === '' ? null : Number(identity);
  $('person').value = identity;
  if (scene.selected && !scene.isShown(scene.selected.person)) select(null);
  else show(frame);
}

function addPeopleToMenu() {
  for (const person of meta.people) $('person').add(new Option(`person ${person.identity}`, person.identity));
  $('person').parentElement.hidden = meta.people.length < 2;
}

function hideVideo() {
  meta.has_video = false;
  $('video-panel').style.display = 'none';
}

async function start() {
  meta = await load();
  document.title = `${meta.name} · fitmesh`;
  $('name').textContent = meta.name;
  $('report').hidden = !meta.report;
  $('report').href = meta.report;
  $('mark-first').hidden = $('mark-last').hidden = !meta.trim;
  if (!meta.has_video) { video.removeAttribute('src'); hideVideo(); }
  scene = new Scene($('canvas'), meta);
  await scene.load('/scene.glb');
  slider.max = meta.frames.length - 1;
  if (!meta.scale_mm.relative) for (const option of $('colour').options) if (option.value.match(/relative|absolute/)) option.disabled = true;
  $('hand-view').hidden = !meta.has_hands;
  $('footprints').parentElement.hidden = !meta.people.some(person => person.footprints.length);
  drawSpans();
  addPeopleToMenu();
  addListeners();
  addIdentities(meta, () => justBefore(frame));
  $('colour').value = meta.scale_mm.relative ? 'relative' : 'person';
  setColour($('colour').value);
  $('message').hidden = meta.people.length > 0;
  $('message').textContent = 'No person was found in this video.';
  window.fitmesh = { meta, scene, seek, select, isolate }; // for the console and for tests
  const tick = () => { follow(); scene.render(); requestAnimationFrame(tick); };
  tick();
  document.body.dataset.ready = 'yes';
}

start().catch(error => {
  $('message').hidden = false;
  $('message').textContent = `Cannot show this result: ${error.message}`;
  throw error;
});
