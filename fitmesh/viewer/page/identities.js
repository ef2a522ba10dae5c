// Corrections of identities: writes what `fitmesh tracks` writes.

const $ = id => document.getElementById(id);

// Fills the bar and sends edits. now: seconds of the video just before the frame that is shown.
export function addIdentities(meta, now) {
  if (!meta.edits) return;
  $('identities-button').hidden = false;
  $('identities-button').addEventListener('click', () => {
    $('identities').hidden = !$('identities').hidden;
    $('identities-button').setAttribute('aria-expanded', !$('identities').hidden);
  });
  const one = () => Number($('edit-person').value), other = () => Number($('edit-other').value);
  $('edit-split').addEventListener('click', () => send(meta, { split: [one(), now()] }));
  $('edit-drop').addEventListener('click', () => send(meta, { drop: [one()] }));
  $('edit-merge').addEventListener('click', () => send(meta, { merge: [one(), other()] }));
  $('edit-undo').addEventListener('click', () => send(meta, { undo: true }));
  show(meta, meta.edits);
}

function show(meta, { edits, people }) {
  for (const menu of [$('edit-person'), $('edit-other')]) {
    const chosen = menu.value;
    menu.replaceChildren(...people.map(person =>
      new Option(`person ${person.identity} (${person.start_s.toFixed(1)} to ${person.end_s.toFixed(1)} s)`, person.identity)));
    if (people.some(person => String(person.identity) === chosen)) menu.value = chosen;
  }
  if ($('edit-other').value === $('edit-person').value && people.length > 1) $('edit-other').selectedIndex = 1;
  $('edit-merge').disabled = people.length < 2;
  $('edit-undo').disabled = !edits.length;
  $('edit-list').textContent = edits.length
    ? `Edits: ${edits.join('; ')}. Run fitmesh run again with the same options to apply them; this page shows the result as it was.`
    : 'No edits.';
}

async function send(meta, edit) {
  const answer = await fetch('/edit', {
    method: 'POST', body: JSON.stringify(edit),
    headers: { 'Content-Type': 'application/json', 'X-Fitmesh-Token': meta.edit_token },
  });
  const content = await answer.json();
  if (answer.ok) show(meta, content);
  else $('edit-list').textContent = content.error;
}
