dev_err 'row0|w own0 pair0:1.5 |x n280:1.25 n38:0.5 n177:1.5
x_7 'row1|w own1 pair0:1.5 |x n201:0.25 n212:0.5 n9:2.0
7 'row2|w own2 pair1:1.5 |x n115:2.0 n178:1.5 n43:1.75
année 2 'row3|w own3 pair1:1.5 |x n102:1.0 n228:1.75 n87:1.75
日 'row4|w own4 pair2:1.5 |x n288:1.75 n268:1.25 n100:1.25
last 'row5|w own5 pair2:1.5 |x n262:2.0 n112:0.75 n210:1.25
7 'row6|w own2 pair1:1.5 |x n241:1.5 n203:0.75 n50:1.25
x_7 'row7|w own1 pair0:1.5 |x n174:1.75 n35:0.75 n282:1.75
last 'row8|w own5 pair2:1.5 |x n218:0.75 n238:1.5 n144:1.0
last 'row9|w own5 pair2:1.5 |x n142:1.75 n7:1.75 n11:0.75
année 2 'row10|w own3 pair1:1.5 |x n77:0.25 n148:0.25 n4:1.25
dev_err 'row11|
x_7 'row12|w own1 pair0:1.5 |x n229:0.5 n189:0.25 n118:1.0
7 'row13|w own2 pair1:1.5 |x n255:1.0 n11:0.5 n64:0.75
dev_err 'row14|w own0 pair0:1.5 |x n193:1.0 n114:1.0 n103:1.5
x_7 'row15|w own1 pair0:1.5 |x n0:1.25 n59:1.5 n293:1.0
last 'row16|w own5 pair2:1.5 |x n212:1.75 n28:1.25 n164:0.75
7 2 'row17|w own2 pair1:1.5 |x n208:0.25 n59:1.75 n222:1.75
année 'row18|w own3 pair1:1.5 |x n13:0.75 n166:0.75 n199:0.75
7 'row19|w own2 pair1:1.5 |x n241:0.5 n206:1.5 n262:1.0
année 'row20|w own3 pair1:1.5 |x n22:1.0 n226:2.0 n113:0.75
last 'row21|w own5 pair2:1.5 |x n262:0.75 n173:0.25 n85:2.0
dev_err 'row22|w own0 pair0:1.5 |x n280:0.25 n237:0.5 n159:1.25
x_7 'row23|w own1 pair0:1.5 |x n163:1.0 n112:0.75 n59:1.0
dev_err 2 'row24|w own0 pair0:1.5 |x n128:0.25 n162:0.75 n184:1.5
x_7 'row25|w own1 pair0:1.5 |x n117:1.25 n221:1.25 n112:1.5
7 'row26|w own2 pair1:1.5 |x n200:1.0 n236:0.5 n152:0.75
日 'row27|w own4 pair2:1.5 |x n288:0.5 n37:0.5 n131:1.0
x_7 'row28|w own1 pair0:1.5 |x n65:1.5 n20:1.5 n140:0.5
7 'row29|w own2 pair1:1.5 |x n54:1.5 n173:0.5 n215:1.5
7 'row30|w own2 pair1:1.5 |x n63:0.75 n275:0.75 n177:0.25
année 2 'row31|w own3 pair1:1.5 |x n119:1.75 n162:1.0 n108:1.0
année 'row32|w own3 pair1:1.5 |x n227:0.25 n193:1.0 n272:1.0
année 'row33|w own3 pair1:1.5 |x n182:1.25 n162:1.0 n259:1.25
日 'row34|w own4 pair2:1.5 |x n118:1.0 n117:1.0 n107:1.0
année 'row35|w own3 pair1:1.5 |x n155:1.75 n21:0.75 n54:0.25
7 'row36|w own2 pair1:1.5 |x n296:1.25 n173:0.5 n203:1.0
dev_err 'row37|w own0 pair0:1.5 |x n20:0.75 n56:0.75 n153:1.75
last 2 'row38|w own5 pair2:1.5 |x n162:2.0 n77:0.75 n277:0.5
7 'row39|w own2 pair1:1.5 |x n79:1.75 n12:0.75 n21:1.75
dev_err 'row40|w own0 pair0:1.5 |x n45:1.75 n261:1.0 n203:1.5
x_7 'row41|w own1 pair0:1.5 |x n52:0.25 n128:0.5 n140:1.5
last 'row42|w own5 pair2:1.5 |x n143:1.25 n43:0.75 n4:2.0
last 'row43|w own5 pair2:1.5 |x n106:1.0 n171:1.0 n184:1.5
x_7 'row44|w own1 pair0:1.5 |x n143:0.25 n123:1.75 n110:0.75
7 2 'row45|w own2 pair1:1.5 |x n132:1.25 n258:0.25 n61:1.0
année 'row46|w own3 pair1:1.5 |x n248:1.5 n92:1.0 n57:0.5
x_7 'row47|w own1 pair0:1.5 |x n294:0.25 n256:1.25 n145:1.75
日 'row48|w own4 pair2:1.5 |x n277:1.75 n256:0.5 n18:1.0
last 'row49|w own5 pair2:1.5 |x n163:0.25 n73:1.5 n67:2.0
x_7 'row50|w own1 pair0:1.5 |x n1:1.25 n20:0.75 n109:1.0
dev_err 'row51|w own0 pair0:1.5 |x n277:1.25 n62:1.0 n132:0.25
last 2 'row52|w own5 pair2:1.5 |x n44:1.0 n175:1.5 n166:0.5
7 'row53|w own2 pair1:1.5 |x n123:1.0 n249:0.75 n127:1.75
x_7 'row54|w own1 pair0:1.5 |x n12:1.5 n146:2.0 n138:2.0
last 'row55|w own5 pair2:1.5 |x n291:1.5 n139:1.5 n137:0.5
7 'row56|w own2 pair1:1.5 |x n269:1.0 n78:1.0 n14:2.0
last 'row57|w own5 pair2:1.5 |x n13:1.0 n84:0.25 n188:0.25
année 'row58|w own3 pair1:1.5 |x n185:0.75 n13:0.75 n117:0.25
année 2 'row59|w own3 pair1:1.5 |x n174:0.25 n209:0.75 n154:1.25
