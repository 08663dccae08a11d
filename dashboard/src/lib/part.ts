import { lazyRouteComponent, type AsyncRouteComponent } from '@tanstack/react-router'
import { lazy, type LazyExoticComponent, type ReactNode } from 'react'
import { pause } from './pause.ts'

type Component<Props> = (props: Props) => ReactNode

/** Attempts while the server answers. After them the code is no longer there: another build has taken its place. */
const attemptsMax = 3
const pauseMs = 500

/**
 * Loads code of the page, again while the network fails it: browsers give up what they load when the machine changes its network, and
 * the server may be away for a while. Throws the last error when the server answers and does not have the code.
 */
async function loadCode<Code>(load: () => Promise<Code>): Promise<Code> {
  for (let failures = 0; ;) {
    try {
      return await load()
    } catch (error) {
      if (await serverAnswers()) failures += 1
      if (failures === attemptsMax) throw error
      await pause(pauseMs)
    }
  }
}

async function serverAnswers(): Promise<boolean> {
  try {
    await fetch('/', { method: 'HEAD', cache: 'no-store' })
    return true
  } catch {
    return false
  }
}

/** A component whose code is read when it is first drawn. */
export function lazyPart<Props>(load: () => Promise<Component<Props>>): LazyExoticComponent<Component<Props>> {
  return lazy(async () => ({ default: await loadCode(load) }))
}

/** The page of a route, whose code is read when it is first opened. Where it is no longer there, the document is loaded anew, once. */
export function lazyPage(load: () => Promise<Component<object>>): AsyncRouteComponent<object> {
  return lazyRouteComponent(async () => ({ default: await loadCode(load) }))
}
