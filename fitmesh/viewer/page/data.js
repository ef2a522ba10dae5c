// The result as the server sends it: names in meta.json, numbers in values.bin.

async function get(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  return answer;
}

export async function load() {
  const [meta, block] = await Promise.all([
    get('/meta.json').then(answer => answer.json()),
    get('/values.bin').then(answer => answer.arrayBuffer()),
  ]);
  const numbers = new Float32Array(block);
  for (const person of meta.people) {
    for (const array of Object.values(person.arrays)) {
      array.size = array.shape.slice(1).reduce((a, b) => a * b, 1);
      array.numbers = numbers.subarray(array.first, array.first + array.shape[0] * array.size);
    }
    // The row of the arrays for one frame of the video; -1 where the person is absent.
    person.rowAt = frame => {
      const span = person.spans.find(({ first, count }) => frame >= first && frame < first + count);
      return span ? span.row + frame - span.first : -1;
    };
    // The numbers [...] of one array in one frame of the video; null where the person is absent.
    person.row = (name, frame) => {
      const row = person.rowAt(frame);
      if (row < 0) return null;
      const { numbers, size } = person.arrays[name];
      return numbers.subarray(row * size, (row + 1) * size);
    };
  }
  return meta;
}

// The last frame at or before a time.
export function frameAt(times, time) {
  let low = 0, high = times.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (times[middle] <= time + 1e-4) low = middle; else high = middle - 1;
  }
  return low;
}
