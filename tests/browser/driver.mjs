// Does in Chromium what its standard input says: one JSON line {context, page, do, …} for each step, and one JSON line
// {value} or {error} with what came of it. Contexts are browsers with cookies of their own. Argument: Chromium's path.
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const browser = await chromium.launch({ executablePath: process.argv[2], args: ["--no-sandbox", "--disable-gpu"] });
const contexts = new Map();
const pages = new Map();

async function pageOf({ context, page }) {
  if (!contexts.has(context)) contexts.set(context, await browser.newContext());
  const name = `${context}/${page}`;
  if (!pages.has(name)) pages.set(name, await contexts.get(context).newPage());
  return pages.get(name);
}

const steps = {
  open: async (page, { url }) => (await page.goto(url)).status(),
  cookie: async (page, { name, value, url }) => { await page.context().addCookies([{ name, value, url }]); },
  html: async (page, { html }) => { await page.setContent(html); },
  fill: async (page, { selector, text }) => { await page.fill(selector, text); },
  click: async (page, { selector, until }) => {
    await Promise.all([until ? page.waitForURL(until) : undefined, page.click(selector)]);
    return page.url();
  },
  press: async (page, { selector }) => {
    const [response] = await Promise.all([page.waitForNavigation(), page.click(selector)]);
    return response.status();
  },
  text: async (page, { selector }) => page.textContent(selector),
  wait: async (page, { selector, text }) => {
    const found = (expected) => document.querySelector(expected.selector)?.textContent === expected.text;
    await page.waitForFunction(found, { selector, text }, { timeout: 20_000 }).catch(async () => {
      throw new Error(`expected ${JSON.stringify(text)}, got ${JSON.stringify(await page.textContent(selector))}`);
    });
  },
  frames: async (page, { url }) => {
    await page.setContent(`<iframe src="${url}"></iframe>`);
    await page.waitForTimeout(0);
    const frame = await (await page.waitForSelector("iframe")).contentFrame();
    await frame.waitForLoadState();
    return frame.content();
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const step = JSON.parse(line);
  try {
    const value = await steps[step.do](await pageOf(step), step);
    console.log(JSON.stringify({ value: value ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error) }));
  }
}
await browser.close();
