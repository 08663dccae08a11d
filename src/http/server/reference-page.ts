import { escapeHtml as escape, htmlPage } from '../../lib/html.ts'
import type { Json, JsonObject, OpenApi } from './openapi.ts'

/** The API reference as one HTML page, rendered from the document alone: no script, nothing loaded from elsewhere. */
export function referencePage(document: OpenApi): string {
  const operations = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => ({ path, method, operation: operation as JsonObject })),
  )
  const groups = Map.groupBy(operations, ({ operation }) => text((operation['tags'] as Json[])[0]))
  const contents = [...groups].map(
    ([tag, items]) => `<li><a href="#${slug(tag)}">${escape(tag)}</a><ul>${items.map(contentsItem).join('')}</ul></li>`,
  )
  const sections = [...groups].map(
    ([tag, items]) =>
      `<section id="${slug(tag)}"><h2>${escape(tag)}</h2>${items.map(operationHtml).join('')}</section>`,
  )
  const schemas = Object.entries(document.components.schemas).map(
    ([name, schema]) =>
      `<details id="schema-${slug(name)}"><summary><code>${escape(name)}</code></summary>${schemaHtml(schema)}</details>`,
  )
  const body = `<nav aria-label="Contents"><a class="home" href="/">Atoll</a><ul>${contents.join('')}<li><a href="#schemas">Schemas</a></li></ul>
<p><a href="/openapi.json">openapi.json</a></p></nav>
<main><h1>Atoll API <small>${escape(text(document.info['version']))}</small></h1>${prose(document.info['description'])}
<p>Authenticate with <code>X-API-Key: &lt;key&gt;</code> or <code>Authorization: Bearer &lt;key&gt;</code>.</p>
${sections.join('\n')}<section id="schemas"><h2>Schemas</h2>${schemas.join('')}</section></main>`
  return htmlPage({ title: 'Atoll API', style, body })
}

interface Operation {
  path: string
  method: string
  operation: JsonObject
}

function contentsItem({ method, path, operation }: Operation): string {
  return `<li><a href="#${escape(text(operation['operationId']))}"><b class="${method}">${method.toUpperCase()}</b> ${escape(path.replace(/^\/(api\/sandboxes|v1\/sessions)(?=.)/, '…'))}</a></li>`
}

function operationHtml({ path, method, operation }: Operation): string {
  const parameters = (operation['parameters'] as JsonObject[]).map(
    (
      parameter,
    ) => `<tr><td><code>${escape(text(parameter['name']))}</code></td><td>${escape(text(parameter['in']))}</td>
<td>${parameter['required'] === true ? 'required' : ''}</td><td>${typeName(parameter['schema'] as JsonObject)} ${descriptionOf(parameter['schema'])}</td></tr>`,
  )
  const request = operation['requestBody'] as JsonObject | undefined
  const all = Object.entries(operation['responses'] as JsonObject) as [
    string,
    { description: string; content?: JsonObject },
  ][]
  const answers = all
    .filter(([status]) => Number(status) < 400)
    .map(
      ([status, { description, content }]) =>
        `<tr><td><code>${status}</code></td><td>${inline(description)}</td><td>${contentHtml(content)}</td></tr>`,
    )
  const failures = all
    .filter(([status]) => Number(status) >= 400)
    .map(([status, { description }]) => `<li><code>${status}</code> ${inline(description)}</li>`)
  return `<article id="${escape(text(operation['operationId']))}"><h3><b class="${method}">${method.toUpperCase()}</b> <code>${escape(path)}</code></h3>
<p>${inline(text(operation['summary']))}.</p>${prose(operation['description'])}
${parameters.length === 0 ? '' : `<h4>Parameters</h4><table>${parameters.join('')}</table>`}
${request === undefined ? '' : `<h4>Body</h4>${bodyHtml(request['content'] as JsonObject)}`}
${answers.length === 0 ? '' : `<h4>Answers</h4><table>${answers.join('')}</table>`}
<h4>Errors</h4><ul class="errors">${failures.join('')}</ul></article>`
}

function bodyHtml(content: JsonObject): string {
  const json = content['application/json'] as { schema: JsonObject } | undefined
  return json === undefined ? '<p>Raw bytes.</p>' : schemaHtml(json.schema)
}

function contentHtml(content: JsonObject | undefined): string {
  if (content === undefined) return ''
  const json = content['application/json'] as { schema: JsonObject } | undefined
  return json === undefined ? escape(Object.keys(content).join(', ')) : typeName(json.schema)
}

function schemaHtml(schema: Json): string {
  const { properties, required = [] } = schema as { properties?: JsonObject; required?: Json[] }
  if (properties === undefined) return `<p>${typeName(schema as JsonObject)} ${descriptionOf(schema)}</p>`
  const rows = Object.entries(properties).map(([name, property]) => {
    const needed = required.includes(name) ? 'required' : ''
    return `<tr><td><code>${escape(name)}</code></td><td>${typeName(property as JsonObject)}</td><td>${needed}</td><td>${descriptionOf(property)}</td></tr>`
  })
  return `<table>${rows.join('')}</table>`
}

function typeName(schema: JsonObject): string {
  const { $ref, type, items, additionalProperties, anyOf, oneOf } = schema
  if (typeof $ref === 'string') {
    const name = $ref.slice($ref.lastIndexOf('/') + 1)
    return `<a href="#schema-${slug(name)}">${escape(name)}</a>`
  }
  const choices = anyOf ?? oneOf
  if (Array.isArray(choices)) return choices.map((choice) => typeName(choice as JsonObject)).join(' or ')
  if (Array.isArray(schema['enum']))
    return schema['enum'].map((value) => `<code>${escape(JSON.stringify(value))}</code>`).join(' ')
  if (schema['const'] !== undefined) return `<code>${escape(JSON.stringify(schema['const']))}</code>`
  if (type === 'array') return `array of ${typeName((items ?? {}) as JsonObject)}`
  if (type === 'object' && additionalProperties && !schema['properties']) {
    return `map of ${typeName(additionalProperties === true ? {} : (additionalProperties as JsonObject))}`
  }
  const { minimum, maximum } = schema
  const isBounded =
    typeof minimum === 'number' && typeof maximum === 'number' && Math.abs(minimum) < 1e15 && maximum < 1e15
  const fallback =
    schema['default'] === undefined ? '' : `, default <code>${escape(JSON.stringify(schema['default']))}</code>`
  return escape(typeof type === 'string' ? type : 'any') + (isBounded ? ` ${minimum}–${maximum}` : '') + fallback
}

function descriptionOf(schema: Json | undefined): string {
  const description = (schema as JsonObject | undefined)?.['description']
  return typeof description === 'string' ? inline(description) : ''
}

function text(value: Json | undefined): string {
  return typeof value === 'string' ? value : ''
}

function prose(value: Json | undefined): string {
  if (value === undefined) return ''
  return text(value)
    .split('\n\n')
    .map((paragraph) => `<p>${inline(paragraph)}</p>`)
    .join('')
}

function inline(value: string): string {
  return escape(value).replaceAll(/`([^`]*)`/g, '<code>$1</code>')
}

function slug(value: string): string {
  return value.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-')
}

const style = `
body{font-size:15px;display:grid;grid-template-columns:19rem minmax(0,58rem);gap:2.5rem}
nav{position:sticky;top:0;height:100vh;overflow:auto;padding:1.25rem 1rem 2rem 1.25rem;border-right:1px solid var(--line);background:var(--panel)}
nav ul{list-style:none;margin:0;padding:0}nav>ul>li{margin-top:.9rem}nav>ul>li>a{font-weight:600;color:var(--ink);text-decoration:none}
nav li li a{display:block;padding:.06rem 0;color:var(--soft);text-decoration:none;font-size:.8rem;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
nav a:hover,nav a:focus-visible{text-decoration:underline}nav li b{display:inline-block;min-width:3.6rem;font-size:.68rem;letter-spacing:.03em}
.home{font-size:1.15rem;font-weight:650;color:var(--ink);text-decoration:none}
main{padding:1.25rem 1.25rem 6rem 0}h1{font-size:1.9rem}h1 small{color:var(--soft);font-weight:400;font-size:1rem}
h2{margin:3rem 0 .5rem;font-size:1.4rem}section,article{scroll-margin-top:1rem}
article{border-top:1px solid var(--line);padding:1rem 0 1.25rem}h3{margin:.2rem 0 .5rem;font-size:1rem}article p{margin:.35rem 0}
h4{margin:.9rem 0 .2rem;font-size:.72rem;letter-spacing:.06em;text-transform:uppercase;color:var(--soft)}
h3 b{display:inline-block;margin-right:.5rem;padding:.1rem .45rem;border:1px solid;border-radius:.3rem;font-size:.72rem;letter-spacing:.03em}
b{color:var(--accent)}b.delete{color:var(--warn)}b.get,b.head{color:var(--soft)}
table{border-collapse:collapse;width:100%;font-size:.9rem}td{border-bottom:1px solid var(--line);padding:.3rem .75rem .3rem 0;vertical-align:top}
td:first-child{width:11rem}td:nth-child(2){width:17rem}
.errors{list-style:none;display:flex;flex-wrap:wrap;gap:.25rem 1.1rem;margin:.2rem 0;padding:0;font-size:.85rem;color:var(--soft)}.errors code:first-child{color:var(--warn)}
details{border-top:1px solid var(--line);padding:.5rem 0;scroll-margin-top:1rem}summary{cursor:pointer}details:target{background:var(--panel)}
code{overflow-wrap:anywhere}
@media(max-width:60rem){body{display:block}nav{position:static;height:auto;max-height:40vh;border:0}main{padding:1rem 1.25rem 4rem}table,tbody,tr{display:block}tr{padding:.3rem 0;border-bottom:1px solid var(--line)}td,td:first-child,td:nth-child(2){display:inline-block;width:auto;border:0;padding:0 .75rem 0 0}}`
