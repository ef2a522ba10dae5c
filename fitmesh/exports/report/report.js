// Reads values off the plots under the pointer.
for (const figure of document.querySelectorAll('.plot')) {
  const svg = figure.querySelector('svg'), out = figure.querySelector('output'), d = figure.dataset;
  const curves = [...svg.querySelectorAll('polyline')].map(line => ({
    title: line.dataset.title, points: line.getAttribute('points').split(' ').map(p => p.split(',').map(Number)) }));
  const cursor = document.createElementNS(svg.namespaceURI, 'line');
  cursor.setAttribute('class', 'cursor'); cursor.setAttribute('y1', 0); cursor.setAttribute('y2', 100);
  svg.addEventListener('pointermove', event => {
    const box = svg.getBoundingClientRect(), x = Math.min(1000, Math.max(0, (event.clientX - box.left) / box.width * 1000));
    cursor.setAttribute('x1', x); cursor.setAttribute('x2', x); svg.append(cursor);
    const time = +d.start + (d.end - d.start) * x / 1000, words = [time.toFixed(2) + ' ' + d.timeUnit];
    for (const curve of curves) {
      if (x < curve.points[0][0] - 5 || x > curve.points.at(-1)[0] + 5) continue;
      const near = curve.points.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a);
      const value = +d.high - (d.high - d.low) * near[1] / 100;
      words.push((curve.title ? curve.title + ' ' : '') + value.toFixed(Math.abs(value) < 10 ? 2 : 1) + d.unit);
    }
    out.textContent = words.join(' · ');
  });
  svg.addEventListener('pointerleave', () => { cursor.remove(); out.textContent = ''; });
}

// Times move the player; without one they are plain text.
const video = document.querySelector('.video video'), times = document.querySelectorAll('.time');
const withoutVideo = () => {
  if (video) { video.hidden = true; video.nextElementSibling.hidden = false; }
  for (const time of times) time.disabled = true;
};
if (!video || video.error) withoutVideo(); else video.addEventListener('error', withoutVideo);
for (const time of times) time.addEventListener('click', () => {
  video.pause();
  video.currentTime = Number(time.dataset.seconds) + 1e-3;
  video.scrollIntoView({ block: 'nearest', behavior: 'smooth' });
});
