// Tries the page of `trace diff --html` in Chromium. CONTRIBUTING.md says how to run it.
//
//     node cli/tests/browser/pair.mjs [DIRECTORY FOR SCREENSHOTS]

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, mkdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const trapline = process.env.TRAPLINE ?? 'target/release/trapline';
const dir = mkdtempSync(join(tmpdir(), 'pair-'));
process.on('exit', () => rmSync(dir, { recursive: true }));
const shots = process.argv[2] ?? join(dir, 'screenshots');
mkdirSync(shots, { recursive: true });

const [a, b, html] = ['a.trap', 'b.trap', 'both.html'].map((file) => join(dir, file));
const record = (tape, ...program) =>
  execFileSync(trapline, ['boot', '-q', '--virtual', '--seed', '1', '--record', tape, ...program], { stdio: 'ignore' });
record(a, 'convoy');
record(b, 'convoy', '--cured');
assert.equal(spawnSync(trapline, ['trace', 'diff', '--html', html, a, b]).status, 1);

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu'],
});
for (const width of [700, 1300]) {
  const page = await browser.newPage({ viewport: { width, height: 900 } });
  page.on('pageerror', (error) => assert.fail(error.stack));
  page.on('console', (message) => assert.fail(message.text()));
  page.on('request', (request) => assert.match(request.url(), /^(file|about):/, 'nothing is loaded'));
  await page.goto(pathToFileURL(html).href);
  const [, above, below] = page.frames();
  const shown = (frame) => frame.evaluate('[view.scale, view.begin, view.end, view.gutter, view.width]');
  /** Waits until both show the same, and returns that. */
  const agreed = async () => {
    for (let left = 100; ; left--) {
      await page.waitForTimeout(20);
      const [one, other] = [await shown(above), await shown(below)];
      if (String(one) === String(other)) return one;
      assert.ok(left > 0, `${one} and ${other}`);
    }
  };
  const [scale, begin, end] = await agreed();
  assert.deepEqual([scale, begin, end], ['time', 0, 62e6], 'the longer run decides');
  const edge = (frame) => frame.evaluate('toX(Math.max(...bars.to.time)) - view.gutter');
  const shares = (await edge(below)) / (await edge(above));
  assert.ok(Math.abs(shares - 21 / 62) < 0.01, `the shorter one ends at ${shares}`);
  await page.screenshot({ path: join(shots, `pair-${width}.png`) });
  await above.click('#in');
  assert.ok((await agreed())[1] > 0, 'zooming above zooms below');
  await below.selectOption('#scale', 'turns');
  assert.equal((await agreed())[0], 'turns');
  await below.click('#fit');
  assert.deepEqual((await agreed()).slice(1, 3), [0, await above.evaluate('facts.axis.turns[1]')]);
  await page.close();
}
await browser.close();
console.log('both runs show the same part of one axis');
