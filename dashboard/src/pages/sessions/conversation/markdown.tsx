import { marked, type Token, type Tokens } from 'marked'
import { Fragment, memo, useMemo, type ReactNode } from 'react'
import { CodeText } from './code-text.tsx'

/** Deeper nesting is drawn as text. */
const depthMax = 12

/**
 * What an agent writes: paragraphs, headings, lists, code, quotes, tables and links. Elements are made of the tokens of the text, so HTML in it stays text,
 * pictures are links, and links lead to `http:` and `https:` alone.
 */
export const Markdown = memo(function Markdown({ text }: { text: string }): ReactNode {
  const tokens = useMemo(() => tokensOf(text), [text])
  if (tokens === undefined) return <p className="break-words whitespace-pre-wrap">{text}</p>
  return <div className="flex min-w-0 flex-col gap-2.5 break-words">{blocksOf(tokens, 0)}</div>
})

function tokensOf(text: string): Token[] | undefined {
  try {
    return marked.lexer(text)
  } catch {
    // Nested so deeply that the lexer gives up.
    return undefined
  }
}

function blocksOf(tokens: readonly Token[], depth: number): ReactNode {
  if (depth > depthMax) return tokens.map(({ raw }) => raw).join('')
  return tokens.map((token, index) => <Fragment key={index}>{blockOf(token as Tokens.Generic, depth)}</Fragment>)
}

function blockOf(token: Tokens.Generic, depth: number): ReactNode {
  const inside = token.tokens ?? []
  switch (token.type) {
    case 'space':
    case 'def':
      return null
    case 'code':
      return <CodeText text={(token as Tokens.Code).text} label="Code" />
    case 'heading':
      return <p className="mt-1 font-semibold">{inlineOf(inside, depth)}</p>
    case 'hr':
      return <hr />
    case 'blockquote':
      return (
        <blockquote className="flex flex-col gap-2 border-l-2 pl-3 text-soft">{blocksOf(inside, depth + 1)}</blockquote>
      )
    case 'list':
      return <List list={token as Tokens.List} depth={depth} />
    case 'table':
      return <Table table={token as Tokens.Table} depth={depth} />
    case 'paragraph':
      return (
        <p dir="auto" className="whitespace-pre-line">
          {inlineOf(inside, depth)}
        </p>
      )
    case 'text':
      return <span>{inside.length > 0 ? inlineOf(inside, depth) : (token as Tokens.Text).text}</span>
    default:
      return <p className="whitespace-pre-wrap">{token.raw}</p>
  }
}

function List({ list: { ordered, start, items }, depth }: { list: Tokens.List; depth: number }): ReactNode {
  const children = items.map((item, index) => (
    <li key={index} className="pl-0.5">
      {item.task && (
        <span aria-label={item.checked === true ? 'done' : 'to do'}>{item.checked === true ? '☑ ' : '☐ '}</span>
      )}
      {blocksOf(
        item.tokens.filter(({ type }) => type !== 'checkbox'),
        depth + 1,
      )}
    </li>
  ))
  if (!ordered) return <ul className="flex list-disc flex-col gap-1 pl-5">{children}</ul>
  return (
    <ol start={start === '' ? 1 : start} className="flex list-decimal flex-col gap-1 pl-6">
      {children}
    </ol>
  )
}

function Table({ table: { header, rows }, depth }: { table: Tokens.Table; depth: number }): ReactNode {
  const cells = (row: readonly Tokens.TableCell[], Cell: 'th' | 'td') =>
    row.map(({ tokens }, index) => (
      <Cell key={index} className="border px-2 py-1 text-left align-top">
        {inlineOf(tokens, depth)}
      </Cell>
    ))
  return (
    <div role="region" aria-label="Table" tabIndex={0} className="max-w-full overflow-x-auto">
      <table className="border-collapse">
        <thead className="bg-panel">
          <tr>{cells(header, 'th')}</tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={index}>{cells(row, 'td')}</tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function inlineOf(tokens: readonly Token[], depth: number): ReactNode {
  if (depth > depthMax) return tokens.map(({ raw }) => raw).join('')
  return tokens.map((token, index) => <Fragment key={index}>{spanOf(token as Tokens.Generic, depth + 1)}</Fragment>)
}

function spanOf(token: Tokens.Generic, depth: number): ReactNode {
  const inside = token.tokens ?? []
  switch (token.type) {
    case 'strong':
      return <strong>{inlineOf(inside, depth)}</strong>
    case 'em':
      return <em>{inlineOf(inside, depth)}</em>
    case 'del':
      return <del>{inlineOf(inside, depth)}</del>
    case 'codespan':
      return <code className="rounded bg-panel px-1 font-mono text-[13px]">{(token as Tokens.Codespan).text}</code>
    case 'br':
      return <br />
    case 'link':
      return <SafeLink href={(token as Tokens.Link).href}>{inlineOf(inside, depth)}</SafeLink>
    case 'image':
      return <SafeLink href={(token as Tokens.Image).href}>[image: {(token as Tokens.Image).text}]</SafeLink>
    case 'escape':
    case 'text':
      return inside.length > 0 ? inlineOf(inside, depth) : (token as Tokens.Text).text
    default:
      return token.raw
  }
}

/** A link of the agent opens a page that knows nothing of this one. What leads elsewhere than to the web is text. */
function SafeLink({ href, children }: { href: string; children: ReactNode }): ReactNode {
  if (!/^https?:\/\//i.test(href)) return <span title={href}>{children}</span>
  return (
    <a href={href} title={href} target="_blank" rel="noopener noreferrer nofollow" className="text-accent underline">
      {children}
    </a>
  )
}
