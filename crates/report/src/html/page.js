'use strict';
(() => {
  const all = (what, from = document) => [...from.querySelectorAll(what)];
  const nodes = (element) => (element.dataset.n || '').split(' ').filter(Boolean);
  const parts = all('[data-n]');
  const choosable = all('.op, .line, .insn, .head, .name, .reg');
  const boxes = new Map(all('.op').map((box) => [box.dataset.n, box]));
  const rows = new Map(all('tr[id]').map((row) => [row.dataset.n, row]));
  const users = new Map();
  for (const [node, box] of boxes) {
    for (const used of box.dataset.uses.split(' ').filter(Boolean)) {
      users.set(used, [...(users.get(used) || []), node]);
    }
  }
  const said = document.getElementById('selected');
  const edges = document.querySelector('.edges');
  const chart = document.querySelector('.chart');
  const scroller = document.querySelector('.scroll');
  const lines = document.querySelector('.lines');
  let chosen = null;

  const clear = () => {
    document.body.classList.remove('choosing');
    all('.on, .sel, .near').forEach((element) => element.classList.remove('on', 'sel', 'near'));
    edges.replaceChildren();
    said.hidden = true;
    chosen = null;
  };

  const middle = (box, side) => {
    const own = box.getBoundingClientRect();
    const around = chart.getBoundingClientRect();
    return [own[side] - around.left, (own.top + own.bottom) / 2 - around.top];
  };

  const connect = (from, to, name) => {
    if (!from || !to) return;
    const [x, y] = middle(from, 'right');
    const [u, v] = middle(to, 'left');
    const bend = Math.max(18, Math.abs(u - x) / 2);
    const path = document.createElementNS(edges.namespaceURI, 'path');
    path.setAttribute('d', `M${x} ${y}C${x + bend} ${y} ${u - bend} ${v} ${u} ${v}`);
    path.setAttribute('class', name);
    edges.append(path);
  };

  // Scrolls inside of a panel, and never the page.
  const reveal = (element, panel) => {
    if (!element) return;
    const own = element.getBoundingClientRect();
    const around = panel.getBoundingClientRect();
    if (own.top < around.top + 50 || own.bottom > around.bottom) panel.scrollTop += own.top - around.top - around.height / 2;
    if (own.left < around.left || own.right > around.right) panel.scrollLeft += own.left - around.left - around.width / 3;
  };

  const add = (parent, tag, text) => {
    const element = document.createElement(tag);
    element.textContent = text;
    parent.append(element, ' ');
    return element;
  };

  const tell = (element, own) => {
    said.replaceChildren();
    const cells = (node) => (rows.has(node) ? [...rows.get(node).cells].map((cell) => cell.textContent) : null);
    if (element.matches('.op')) {
      const [name, what, bits, levels, instruction, source] = cells(own[0]) || [];
      add(said, 'b', `${name} = ${what}`);
      const line = rows.has(own[0]) ? rows.get(own[0]).cells[5].title : '';
      const when = levels.startsWith('to') ? `until ${levels.slice(3)}` : `levels ${levels}`;
      const stage = rows.get(own[0])?.closest('details').querySelector('summary').firstChild.textContent.trim();
      add(said, 'div', [stage, when, `${bits} bits`, `instruction ${instruction}`, `${source} ${line}`].join('  ·  '));
    } else {
      const title = element.matches('.head') ? `Stage ${element.dataset.s}`
        : element.matches('.reg') ? element.title
        : (element.querySelector('code, b') || element).textContent.trim();
      add(said, 'b', title);
      const count = own.length === 1 ? '1 operation' : `${own.length} operations`;
      add(said, 'small', own.length ? count : 'nothing but wires, or nothing of its own');
      const list = add(said, 'ul', '');
      // Tables first: they say most.
      const isTable = (node) => !boxes.get(node)?.closest('.table');
      const shown = [...own].sort((a, b) => isTable(a) - isTable(b));
      for (const node of shown.slice(0, 12)) {
        const row = cells(node);
        if (row) add(list, 'li', `${row[0]} = ${row[1]}`);
      }
      if (own.length > 12) add(list, 'li', `… ${own.length - 12} more`);
    }
    const close = add(said, 'button', '×');
    close.setAttribute('aria-label', 'select nothing');
    close.addEventListener('click', clear);
    said.hidden = false;
  };

  const choose = (element) => {
    const again = element === chosen;
    clear();
    if (again) return;
    chosen = element;
    document.body.classList.add('choosing');
    const own = nodes(element);
    const wanted = new Set(own);
    for (const part of parts) {
      if (nodes(part).some((node) => wanted.has(node))) part.classList.add('on');
    }
    const { l, s } = element.dataset;
    if (l) all(`[data-l="${l}"]`).forEach((part) => part.classList.toggle('on', true));
    if (element.matches('.insn')) all('.insn.on').forEach((part) => part.classList.toggle('on', part === element));
    if (s) all(`.col[data-s="${s}"]`).forEach((part) => part.classList.add('on'));
    all('.head.on').forEach((head) => all(`.col[data-s="${head.dataset.s}"]`).forEach((part) => part.classList.add('on')));
    all('.name.on').forEach((name) => name.parentElement.querySelector('.bar').classList.add('on'));
    element.classList.add('on', 'sel');
    if (element.matches('.op')) {
      const [node] = own;
      for (const used of element.dataset.uses.split(' ').filter(Boolean)) {
        boxes.get(used)?.classList.add('near');
        connect(boxes.get(used), element, 'from');
      }
      for (const user of users.get(node) || []) {
        boxes.get(user)?.classList.add('near');
        connect(element, boxes.get(user), 'to');
      }
    }
    tell(element, own);
    reveal(all('.line.on')[0], lines);
    if (!element.matches('.op, .head, .reg')) reveal(all('.op.on')[0], scroller);
  };

  for (const element of choosable) {
    element.addEventListener('click', (event) => {
      event.preventDefault();
      choose(element);
    });
  }
  for (const row of rows.values()) {
    row.addEventListener('click', () => boxes.has(row.dataset.n) && choose(boxes.get(row.dataset.n)));
  }

  // Of boxes and lines one each is reached by Tab; the arrows lead to the others.
  const groups = ['.op', '.line, .insn', '.head', '.reg'].map((what) => choosable.filter((element) => element.matches(what)));
  const rove = (group, element) => {
    group.forEach((other) => { other.tabIndex = other === element ? 0 : -1; });
    element.focus();
  };
  groups.forEach((group) => group.forEach((element, at) => { element.tabIndex = at ? -1 : 0; }));
  const nearest = (element, dx, dy) => {
    const from = element.getBoundingClientRect();
    let best = null;
    for (const other of groups[0]) {
      const to = other.getBoundingClientRect();
      const [x, y] = [to.left - from.left, to.top - from.top];
      const along = x * dx + y * dy;
      const across = Math.abs(x * dy) + Math.abs(y * dx);
      if (along > 1 && (!best || along + 3 * across < best.far)) best = { other, far: along + 3 * across };
    }
    return best && best.other;
  };
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') return clear();
    const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    const element = document.activeElement;
    const group = step && groups.find((own) => own.includes(element));
    if (!group) return;
    const visible = group.filter((other) => other.offsetParent);
    const next = group === groups[0] ? nearest(element, ...step) : visible[visible.indexOf(element) + step[0] + step[1]];
    if (next) rove(group, next);
    event.preventDefault();
  });
  addEventListener('resize', () => {
    if (!chosen) return;
    const element = chosen;
    clear();
    choose(element);
  });
  // A page with a place in its address shows it: #n97 selects that operation, #m0 a map; with #!n97 the page stays where it is.
  const start = document.getElementById(location.hash.replace(/^#!?/, ''));
  if (start) choose(start.matches('tr') ? boxes.get(start.dataset.n) || start : start);
})();
