import type { Token, Tokens } from 'marked'

/** The text of tokens as a reader sees it, without markup; cells of a table are separated by spaces, rows and blocks by line ends. */
export function textOf(tokens: readonly Token[] | undefined): string {
  return (tokens ?? []).map((token) => tokenText(token)).join('')
}

function tokenText(token: Token): string {
  switch (token.type) {
    case 'table': {
      const { header, rows } = token as Tokens.Table
      return [header, ...rows].map((cells) => `${cells.map((cell) => textOf(cell.tokens)).join(' ')}\n`).join('')
    }
    case 'list':
      return (token as Tokens.List).items.map((item) => `${textOf(item.tokens)}\n`).join('')
    case 'code':
      return `${(token as Tokens.Code).text}\n`
    case 'br':
    case 'space':
    case 'hr':
      return '\n'
    case 'html':
    case 'def':
      return ''
    case 'heading':
    case 'paragraph':
    case 'blockquote':
      return `${textOf((token as Tokens.Paragraph).tokens)}\n`
    default: {
      const { tokens, text = '' } = token as { tokens?: Token[]; text?: string }
      return tokens === undefined ? text : textOf(tokens)
    }
  }
}
