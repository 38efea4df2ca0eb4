import { LabIcon } from '@jupyterlab/ui-components';

/** A pulse: something that lives. Drawn with strokes, which Lab's themes colour. */
export const sessionIcon = new LabIcon({
  name: 'kernel-runtime:session',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 24 24">' +
    '<path class="jp-icon3 jp-icon-selectable" fill="#616161" ' +
    'd="M9.9 3.6 6.3 11H2v2h5.6l2.1-4.4 4 11.9 3.5-7.5H22v-2h-6.1l-1.9 4.1z"/>' +
    '</svg>'
});
