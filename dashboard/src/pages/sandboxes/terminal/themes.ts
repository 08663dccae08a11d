import type { ITheme } from '@xterm/xterm'

const light: ITheme = {
  black: '#12262b',
  red: '#ad3a27',
  green: '#1c7c4a',
  yellow: '#8a5a00',
  blue: '#1f5fb0',
  magenta: '#8b3f9e',
  cyan: '#0a7384',
  white: '#7c8f94',
  brightBlack: '#52676d',
  brightRed: '#c2452f',
  brightGreen: '#23905a',
  brightYellow: '#a36b00',
  brightBlue: '#2f73c9',
  brightMagenta: '#a050b4',
  brightCyan: '#108a9d',
  brightWhite: '#9db1b7',
}

const dark: ITheme = {
  black: '#2a3e44',
  red: '#f28b75',
  green: '#5fd195',
  yellow: '#e8b25c',
  blue: '#82b1ff',
  magenta: '#d59be6',
  cyan: '#4cc3d5',
  white: '#c9d8db',
  brightBlack: '#7d949a',
  brightRed: '#ffa896',
  brightGreen: '#8ae6b4',
  brightYellow: '#f5cb85',
  brightBlue: '#a9caff',
  brightMagenta: '#e6bdf2',
  brightCyan: '#83dcea',
  brightWhite: '#ffffff',
}

/** The colors of a screen in the page as it is now, light or dark. */
export function screenTheme(isDark: boolean): ITheme {
  const page = getComputedStyle(document.documentElement)
  const color = (name: string) => page.getPropertyValue(name).trim()
  return {
    ...(isDark ? dark : light),
    background: color('--raised'),
    foreground: color('--ink'),
    cursor: color('--accent'),
    cursorAccent: color('--raised'),
    selectionBackground: isDark ? '#2f6a75' : '#b5dde3',
    scrollbarSliderBackground: isDark ? '#9db1b744' : '#52676d44',
    scrollbarSliderHoverBackground: isDark ? '#9db1b788' : '#52676d88',
    scrollbarSliderActiveBackground: isDark ? '#9db1b7aa' : '#52676daa',
  }
}
