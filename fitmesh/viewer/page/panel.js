// The values of one joint, and its uncertainty over time.

const words = name => name.replaceAll('_', ' ');
const number = (value, digits, unit) => Number.isFinite(value) ? `${value.toFixed(digits)}${unit}` : 'unknown';

function rows(meta, person, joint, frame) {
  const point = person.row('joints_m', frame);
  if (!point) return [['', 'absent in this frame']];
  const at = name => person.row(name, frame);
  const list = [
    ['x, y, z', [0, 1, 2].map(axis => point[3 * joint + axis].toFixed(2)).join(', ') + ' m'],
    ['uncertainty, pose', number(at('relative_mm')[joint], 0, ' mm')],
    ['uncertainty, position', number(at('absolute_mm')[joint], 0, ' mm')],
    ['worst joint, pose', number(at('worst_mm')[0], 0, ' mm')],
    ['no joint off by 100 mm', Number.isFinite(at('reliable')[0]) ? `${Math.round(100 * at('reliable')[0])} %` : 'unknown'],
    ['observed', at('joint_observed')[joint] ? 'yes' : at('observed')[0] ? 'no' : 'no, frame filled in'],
  ];
  meta.angles.forEach((name, i) => {
    if (name.startsWith(meta.joints[joint])) list.push([words(name.slice(meta.joints[joint].length + 1)), number(at('angles_deg')[i], 1, '°')]);
  });
  meta.keypoints.forEach((name, i) => {
    if (meta.joint_of_keypoint[i] !== joint) return;
    list.push([`${words(name)}: confidence`, number(at('confidence')[i], 2, '')]);
    list.push([`${words(name)}: presence`, number(at('presence')[i], 2, '')]);
    list.push([`${words(name)}: reprojection error`, number(at('reprojection_px')[i], 1, ' px')]);
  });
  return list;
}

function curve(person, joint, frame) {
  const { numbers, size } = person.arrays.relative_mm;
  const finite = Array.from({ length: person.count }, (_, row) => numbers[row * size + joint]).filter(Number.isFinite);
  if (finite.length < 2) return null;
  const most = finite.reduce((a, b) => Math.max(a, b)), svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const last = person.spans.at(-1), length = last.first + last.count - person.first;
  svg.setAttribute('viewBox', `0 0 ${length - 1} 1`);
  svg.setAttribute('preserveAspectRatio', 'none');
  for (const span of person.spans) { // one line for each: none across an absence
    const line = document.createElementNS(svg.namespaceURI, 'polyline'), points = [];
    for (let i = 0; i < span.count; i++) {
      const value = numbers[(span.row + i) * size + joint];
      if (Number.isFinite(value)) points.push(`${span.first - person.first + i},${1 - value / most}`);
    }
    line.setAttribute('points', points.join(' '));
    svg.append(line);
  }
  const now = document.createElementNS(svg.namespaceURI, 'line'), x = frame - person.first;
  for (const [key, value] of [['x1', x], ['x2', x], ['y1', 0], ['y2', 1]]) now.setAttribute(key, value);
  if (x >= 0 && x < length) svg.append(now);
  return { svg, most };
}

export function showPanel(panel, meta, { person, joint }, frame, close) {
  const title = document.createElement('h2'), dot = document.createElement('span');
  dot.className = 'dot';
  dot.style.background = person.colour;
  title.append(dot, `${words(meta.joints[joint])}, person ${person.identity}`);
  const button = document.createElement('button');
  button.className = 'close';
  button.textContent = '×';
  button.setAttribute('aria-label', 'Close');
  button.addEventListener('click', close);
  const table = document.createElement('table');
  for (const [name, value] of rows(meta, person, joint, frame)) {
    const row = table.insertRow(), head = document.createElement('th');
    head.textContent = name;
    row.append(head);
    row.insertCell().textContent = value;
  }
  panel.replaceChildren(title, button, table);
  const drawn = curve(person, joint, frame);
  if (drawn) {
    const note = document.createElement('small');
    note.textContent = `uncertainty of the pose, 0 to ${drawn.most.toFixed(0)} mm`;
    panel.append(drawn.svg, note);
  }
  panel.hidden = false;
}
