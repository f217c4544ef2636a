// Uses the explorer as a person does, and prints one JSON line for each thing seen. Arguments: the page's URL, a
// folder for screenshots, the path of Chromium, a token to sign in with (or nothing), looks such as "light:1280", and
// "large" if GitHub's API is served, "rules" if its operations have rules, or "held" if some of them are held.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const [base, folder, executablePath, token, looks, what] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf-8");
const tell = (step, value) => console.log(JSON.stringify({ step, value }));

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const outside = [];
const errors = [];

async function open(options = {}, path = "") {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.on("request", (request) => { if (!request.url().startsWith(base) && !request.url().startsWith("data:")) outside.push(request.url()); });
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => { if (message.type() === "error" && !message.text().includes("status of 4")) errors.push(message.text()); });
  await page.goto(base + path);
  await page.waitForFunction(() => document.querySelector("#list a") || document.querySelector("#list:empty + *") || document.title !== "");
  return page;
}

async function violations(page, name) {
  // By the page's own policy no script comes in from outside: the judge is handed to the engine itself.
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: axe });
  const { result } = await session.send("Runtime.evaluate", {
    expression: "axe.run().then((found) => JSON.stringify(found.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.target.join(' ') + ' ' + (n.any[0] ? n.any[0].message : '')).slice(0, 3).join(', ')}`)))",
    awaitPromise: true, returnByValue: true,
  });
  for (const violation of JSON.parse(result.value)) tell("violation", `${name}: ${violation}`);
}

const picture = { name: "dot.png", mimeType: "image/png", buffer: Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=", "base64") };

const result = (page) => page.locator("section[aria-label=Result]");

async function features() {
  const page = await open();
  await page.waitForSelector("#list a");
  tell("title", await page.title());
  tell("listed", await page.locator("#list a").allTextContents());
  await page.fill("#search", "two integers");
  tell("found", await page.locator("#list a").allTextContents());
  await page.fill("#search", "");

  await page.click("text=offer");
  await page.waitForSelector("h1:has-text('shop.offer')");
  await page.click("button:has-text('Call')");
  tell("missing", await page.locator(".wrong:visible").textContent());
  await page.fill("[name=a]", "x");
  await page.click("button:has-text('Call')");
  tell("wrong", await page.locator(".wrong:visible").textContent());
  await page.fill("[name=a]", "40");
  await page.click("button:has-text('Call')");
  await result(page).locator(".tree").waitFor();
  tell("answer", await result(page).locator("[aria-label=Data]").textContent());
  tell("tree", await result(page).locator(".tree .name").allTextContents());
  await page.click("button:has-text('Envelope')");
  tell("envelope", JSON.parse(await result(page).locator("[aria-label=Envelope]").textContent()).meta.operationId);

  await page.click("#tab-json");
  tell("json", JSON.parse(await page.inputValue("#whole")));
  await page.fill("#whole", '{"a": 1');
  await page.keyboard.press("Control+Enter");
  tell("no json", await page.locator("#whole-wrong").textContent());
  await page.fill("#whole", '{"a": 5}');
  await page.click("#tab-form");
  tell("form again", await page.inputValue("[name=a]"));

  await page.goto(base + "#/operation/shop.find");
  await page.fill("[name=names]", "a\nb");
  await page.selectOption("[name=on]", "true");
  await page.fill("[name=where]", '{"k": 1}');
  await page.click("button:has-text('Call')");
  await result(page).locator("[aria-label=Data]").waitFor();
  tell("kinds", JSON.parse(await result(page).locator("[aria-label=Data]").textContent()));

  await page.goto(base + "#/operation/shop.put");
  await page.click("button:has-text('Example')");
  await page.click("[aria-label='Add an item to book.authors']");
  await page.fill("[name='book.title']", "Emma");
  await page.fill("[name='book.authors[0].name']", "Jane");
  await page.fill("[name='book.authors[0].born']", "1775-12-16");
  await page.selectOption("[name='where?']", { label: "integer" });
  await page.fill("[name=where]", "9007199254740993");
  await page.click("button.primary");
  await result(page).locator("[aria-label=Data]").waitFor();
  tell("nested", await result(page).locator("[aria-label=Data]").textContent());
  await page.click("summary:has-text('Call it from elsewhere')");
  await page.waitForSelector(".elsewhere pre");
  tell("snippets", await page.locator(".elsewhere pre").allTextContents());
  await violations(page, "snippets");
  await page.click("#tab-json");
  await violations(page, "input as JSON");
  tell("nested as json", await page.inputValue("#whole"));
  await page.click("#tab-form");
  tell("nested again", [await page.inputValue("[name='book.authors[0].name']"), await page.inputValue("[name=where]")]);
  for (const head of await page.locator(".about-output > details > summary").all()) await head.click();
  await page.waitForFunction(() => document.querySelectorAll(".about-output > details > ul").length === 2);
  tell("returns", await page.locator(".about-output b").allTextContents());
  await page.fill("[name='book.title']", "");
  await page.click("[aria-label='Add an item to book.authors']");
  await page.fill("[name='book.pages']", "x");
  await page.click("button.primary");
  tell("wrong inside", [await page.locator(".wrong:visible").textContent(), await page.evaluate(() => document.activeElement.name)]);
  await violations(page, "nested");

  await page.goto(base + "#/operation/shop.cover");
  await page.setInputFiles("[name=picture]", picture);
  await page.waitForSelector("text=68 bytes");
  await page.click("button.primary");
  await page.waitForSelector("img.picture");
  tell("picture", await page.evaluate(() => document.querySelector("img.picture").naturalWidth));
  tell("saved", await page.getAttribute("a[download]", "download"));
  await violations(page, "picture");

  await page.goto(base + "#/operation/shop.buy");
  await page.click("button:has-text('Call')");
  await result(page).locator("[aria-label=Problem]").waitFor();
  tell("problem", await result(page).locator(".status b").textContent());
  await violations(page, "problem");

  await page.goto(base + "#/operation/shop.ticks");
  await page.fill("[name=every]", "0.02");
  await page.click("button:has-text('Subscribe')");
  await page.waitForFunction(() => document.querySelectorAll(".items li").length >= 3);
  await page.click("button:has-text('Stop')");
  await page.waitForSelector("text=Stopped");
  tell("stopped", (await page.locator(".items li").count()) >= 3);
  await page.fill("[name=every]", "");
  await page.goto(base + "#/operation/shop.breaks");
  await page.click("button:has-text('Subscribe')");
  await page.waitForSelector("text=Ended by");
  tell("broken stream", await result(page).locator(".status b").textContent());

  await page.click("text=System");
  await page.waitForSelector("[aria-label=Sources] tbody tr");
  tell("sources", await page.locator("[aria-label=Sources] tbody tr").allTextContents());
  await page.click("[aria-label='Reload more']");
  await page.waitForFunction(() => [...document.querySelectorAll("#list a")].some((each) => each.textContent.includes("reloaded")));
  tell("reloaded", await page.evaluate(() => document.activeElement.getAttribute("aria-label")));
  tell("plugins", (await page.locator("[aria-label=Plugins] tbody tr").allTextContents()).length > 0);
  tell("markup", await page.evaluate(() => document.querySelector("img[src='x']") === null));
  await page.context().close();
}

async function tabTo(page, test, argument) {
  for (let n = 0; n < 60; n++) {
    await page.keyboard.press("Tab");
    if (await page.evaluate(test, argument)) return;
  }
  throw new Error(`not reached: ${test} ${argument}`);
}

async function chooseByKeyboard(page, words, id) {
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("/");
  await page.keyboard.press("Control+A");
  await page.keyboard.type(words);
  await page.waitForFunction((name) => document.querySelector("#list a")?.textContent.includes(name), id.slice(id.indexOf(".") + 1));
  await page.keyboard.press("Enter");
  await page.waitForSelector(`h1:has-text('${id}')`);
}

async function keyboard() {
  const page = await open();
  await page.waitForSelector("#list a");
  await page.keyboard.press("Tab");
  tell("first stop", await page.evaluate(() => document.activeElement.textContent));
  await page.keyboard.press("/");
  await page.keyboard.type("add two");
  await page.keyboard.press("Enter");
  await page.waitForSelector("h1:has-text('shop.add')");
  tell("focus on heading", await page.evaluate(() => document.activeElement.tagName));
  const reach = (test) => tabTo(page, test);
  await reach(() => document.activeElement.id === "tab-form");
  await page.keyboard.press("ArrowRight");
  tell("arrow", await page.evaluate(() => document.activeElement.id));
  await page.keyboard.press("ArrowLeft");
  await reach(() => document.activeElement.name === "a");
  await page.keyboard.type("1");
  await page.keyboard.press("Control+Enter");
  await result(page).locator("[aria-label=Data]").waitFor();
  tell("by keyboard", await result(page).locator("[aria-label=Data]").textContent());
  await reach(() => document.activeElement.textContent === "Envelope");
  await page.keyboard.press("Enter");
  tell("pressed", await page.evaluate(() => document.activeElement.getAttribute("aria-pressed")));
  const choose = (words, id) => chooseByKeyboard(page, words, id);
  await choose("put a book", "shop.put");
  await reach(() => document.activeElement.name === "book.title");
  await page.keyboard.type("Emma");
  await reach(() => document.activeElement.name === "book.pages");
  await page.keyboard.type("474");
  await reach(() => document.activeElement.textContent === "Add an item");
  await page.keyboard.press("Space");
  tell("focus in the item", await page.evaluate(() => document.activeElement.name));
  await page.keyboard.type("Jane");
  await page.keyboard.press("Control+Enter");
  await result(page).locator("[aria-label=Data]").waitFor();
  tell("nested by keyboard", JSON.parse(await result(page).locator("[aria-label=Data]").textContent()).book.authors[0].name);
  await choose("states of an order", "shop.breaks");
  await page.keyboard.press("Control+Enter");
  await reach(() => document.activeElement.name === "n");
  await page.keyboard.press("Control+Enter");
  await page.waitForSelector("text=Ended by");
  await choose("what is left", "shop.buy");
  await reach(() => document.activeElement.textContent === "Call");
  await page.keyboard.press("Enter");
  await result(page).locator("[aria-label=Problem]").waitFor();
  tell("error by keyboard", await result(page).locator(".status b").textContent());
  await choose("again and again", "shop.ticks");
  await reach(() => document.activeElement.name === "every");
  await page.keyboard.type("0.02");
  await page.keyboard.press("Control+Enter");
  await page.waitForFunction(() => document.querySelectorAll(".items li").length >= 3);
  await reach(() => document.activeElement.textContent === "Stop");
  await page.keyboard.press("Enter");
  await page.waitForSelector("text=Stopped");
  tell("stream by keyboard", (await page.locator(".items li").count()) >= 3);
  await choose("return a picture", "shop.cover");
  let chooser = null;
  for (let presses = 0; !chooser && presses < 10; presses++) {  // a key may come before the page is ready
    await reach(() => document.activeElement.type === "file");
    const opened = page.waitForEvent("filechooser", { timeout: 3000 }).catch(() => null);
    await page.keyboard.press("Space");
    chooser = await opened;
  }
  await chooser.setFiles(picture);
  await page.waitForSelector("text=68 bytes");
  await page.keyboard.press("Control+Enter");
  await page.waitForSelector("img.picture");
  tell("file by keyboard", await page.evaluate(() => document.querySelector("img.picture").naturalWidth));
  await page.context().close();
}

async function github() {
  const page = await open();
  await page.waitForSelector("#list a", { state: "attached" });
  tell("count", await page.locator("#list a").count());
  await violations(page, "a large list");
  await page.screenshot({ path: `${folder}/large-list.png` });
  await chooseByKeyboard(page, "issues/list-for-repo", "github.issues/list-for-repo");
  for (const [name, value] of [["owner", "octocat"], ["repo", "hello"]]) {
    await tabTo(page, (wanted) => document.activeElement.name === wanted, name);
    await page.keyboard.type(value);
  }
  await page.keyboard.press("Control+Enter");
  await result(page).locator("[aria-label=Data]").waitFor();
  tell("listed by keyboard", JSON.parse(await result(page).locator("[aria-label=Data]").textContent()).map((each) => each.title));
  await violations(page, "a large operation");
  await page.screenshot({ path: `${folder}/large-call.png` });
  await chooseByKeyboard(page, "pulls/create", "github.pulls/create");
  for (const [name, value] of [["owner", "octocat"], ["repo", "hello"], ["title", "A change"], ["head", "a"], ["base", "b"]]) {
    await tabTo(page, (wanted) => document.activeElement.name === wanted, name);
    await page.keyboard.type(value);
  }
  await page.keyboard.press("Control+Enter");
  await result(page).locator("[aria-label=Problem]").waitFor();
  tell("refused by keyboard", await result(page).locator(".status b").textContent());
  await violations(page, "an error of a large API");
  await page.screenshot({ path: `${folder}/large-error.png` });
  await page.context().close();
}

async function pictures() {
  for (const look of looks.split(",")) {
    const [colorScheme, size] = look.split(":");
    for (const width of [Number(size)]) {
      const page = await open({ colorScheme, viewport: { width, height: width === 390 ? 844 : 900 } });
      await page.waitForSelector("#list a");
      const shot = (name) => page.screenshot({ path: `${folder}/${name}-${colorScheme}-${width}.png` });
      await violations(page, `start ${colorScheme} ${width}`);
      await shot("start");
      await page.goto(base + "#/operation/shop.offer");
      await page.fill("[name=a]", "40");
      await page.keyboard.press("Control+Enter");
      await result(page).locator(".tree").waitFor();
      await violations(page, `call ${colorScheme} ${width}`);
      await shot("call");
      await page.goto(base + "#/operation/shop.find");
      await page.click("button:has-text('Call')");
      await violations(page, `form ${colorScheme} ${width}`);
      await page.goto(base + "#/operation/shop.breaks");
      await page.fill("[name=n]", "3");
      await page.keyboard.press("Control+Enter");
      await page.waitForSelector("text=Ended by");
      await violations(page, `stream ${colorScheme} ${width}`);
      await shot("stream");
      await page.goto(base + "#/system");
      await page.waitForSelector("h1:has-text('System')");
      await violations(page, `system ${colorScheme} ${width}`);
      await shot("system");
      const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
      if (wide) tell("violation", `${colorScheme} ${width}: the page is wider than the window`);
      await page.context().close();
    }
  }
}

async function signedIn() {
  const page = await open();
  await page.waitForSelector("h1:has-text('Sign in')");
  tell("before a token", [await page.locator("#list a").count(), await page.evaluate(() => document.activeElement.id)]);
  await violations(page, "sign in");
  await page.click("#to-system");
  tell("page before a token", [await page.title(), await page.locator("h1").textContent()]);
  await page.fill("#token", "wrong");
  await page.click("button:has-text('Use')");
  await page.waitForFunction(() => document.querySelector("#identity").textContent !== "");
  tell("wrong token", await page.locator("#identity").textContent());
  await page.fill("#token", token);
  await page.click("button:has-text('Use')");
  await page.waitForSelector("text=signed in as root");
  tell("listed with token", (await page.locator("#list a").allTextContents()).some((text) => text.includes("secret")));
  tell("stored", await page.evaluate(() => localStorage.length + sessionStorage.length + document.cookie.length + location.href.includes("token")));
  await violations(page, "signed in");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#to-document")]);
  tell("document", Object.keys(JSON.parse(readFileSync(await download.path(), "utf-8")).paths).includes("/operations/admin.secret"));
  await page.goto(base + "#/operation/shop.add");
  await page.fill("[name=a]", "40");
  await page.keyboard.press("Control+Enter");
  await result(page).locator("text=Succeeded").waitFor();
  tell("called with token", await result(page).locator("pre").first().textContent());
  await page.context().close();
}

// The server allows three explanations in an hour.
async function rules() {
  const card = (page) => page.locator("section[aria-label=Rules]");
  for (const colorScheme of ["light", "dark"]) {
    const page = await open({ colorScheme });
    const explained = [];
    page.on("request", (request) => { if (request.url().endsWith("operad.rules.explain")) explained.push(request.url()); });
    await page.fill("#token", token);
    await page.click("button:has-text('Use')");
    await page.waitForSelector("text=signed in as");
    await page.goto(base + "#/operation/shop.find");
    await page.waitForSelector("h1:has-text('shop.find')");
    await page.goto(base + "#/operation/shop.add");
    await page.waitForSelector("h1:has-text('shop.add')");
    tell("headings", await card(page).locator("h2").allTextContents());
    if (await card(page).count()) {
      await page.focus(".rules summary");
      tell("before", explained.length);
      await page.keyboard.press("Enter");
      await card(page).locator("li").first().waitFor();
      tell("rules", await card(page).locator("li").allTextContents());
      tell("markup", await page.locator("main img").count());
      await violations(page, `rules ${colorScheme}`);
      await page.screenshot({ path: `${folder}/rules-${colorScheme}-1280.png` });
      if (colorScheme === "dark") {
        await page.goto(base + "#/operation/shop.buy");
        await page.waitForSelector("h1:has-text('shop.buy')");
        await page.click(".rules summary");
        await page.waitForSelector(".rules p:has-text('No rule applies')");
        await page.goto(base + "#/operation/shop.find");
        await page.waitForSelector("h1:has-text('shop.find')");
        await page.click(".rules summary");
        await page.waitForSelector(".rules p:has-text('cannot be shown')");
        tell("refused", await card(page).locator("p").textContent());
        await violations(page, "refused rules");
        await page.screenshot({ path: `${folder}/rules-refused-1280.png` });
        await page.click("button:has-text('Example')");
        await page.click("button.primary");
        await result(page).locator("[aria-label=Data]").waitFor();
        tell("works", true);
      }
    }
    await page.context().close();
  }
}

async function held() {
  for (const colorScheme of ["light", "dark"]) {
    const page = await open({ colorScheme });
    await page.fill("#token", token);
    await page.click("button:has-text('Use')");
    await page.waitForSelector("text=signed in as");
    tell("listed", (await page.locator("#list a").allTextContents()).map((text) => text.trim()));
    await page.click("text=System");
    await page.waitForSelector("h1:has-text('System')");
    tell("held", await page.locator("[aria-label='Held operations'] tbody td").allTextContents());
    tell("markup", await page.locator("main img").count());
    await violations(page, `held ${colorScheme}`);
    await page.screenshot({ path: `${folder}/held-${colorScheme}-1280.png` });
    await page.context().close();
  }
}

try {
  if (what === "large") await github();
  else if (what === "held") await held();
  else if (what === "rules") await rules();
  else if (token) await signedIn();
  else { await features(); await keyboard(); await pictures(); }
  for (const each of outside) tell("outside", each);
  for (const each of errors) tell("error", each);
  tell("done", true);
} catch (error) {
  tell("failed", String(error.stack || error));
} finally {
  await browser.close();
}
